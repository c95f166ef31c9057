// What comes to a worker that no token server says.

#include "ops/runtime/fela/fela_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/runtime/fela/fela_messages.h"
#include "ops/runtime/fela/fela_peer_testing.h"

namespace trepak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kServer = 1;
constexpr uint32_t kSamples = 8;  // of each of three workers

// T-1 tokens 0 to 5, T-2 tokens 6 to 8, and backward 9 to 14, of which worker 0 trains all.
FelaRules Rules() {
  FelaRules rules;
  rules.batches = {kSamples, kSamples, kSamples};
  rules.threshold = 4;
  rules.weights = {1, 2};
  rules.subsets = {{0, 1, 2}, {0, 2}};
  return rules;
}

// A T-2 token, of samples of workers 0 and 1.
FelaScheduler::Assignment Token() {
  FelaScheduler::Assignment token{0, 7, 2, 8, false, {}, {{4, 4}, {8, 4}}};
  token.inputs = {{FelaChunkKind::kOutput, 1, 0, 4}, {FelaChunkKind::kOutput, 2, 1, 4}};
  return token;
}

Message Saying(MessageKind kind, uint32_t key) {
  Message message;
  message.header.kind = kind;
  message.header.key = key;
  return message;
}

// What worker 0 gets of one message of a rank.
std::string Heard(Message message, uint32_t rank = kServer) {
  const Endpoint::Options about{0, 3, FelaPeers::kDeadline};
  Liar<FelaWorker> liar(std::make_shared<FelaWorker>(about, kServer, Rules(), nullptr,
                                                     std::make_shared<ErrorLatch>()),
                        rank);
  liar.Say(std::move(message));
  liar.Settle();
  return std::string(liar.to().status().message());
}

TEST(FelaWorkerTest, OnlyTheTokenServerSaysWhatToDo) {
  for (const MessageKind kind :
       {fela::kAssign, fela::kSend, fela::kTrained, fela::kOver, fela::kHere}) {
    EXPECT_THAT(Heard(Saying(kind, 1), 2),
                AllOf(HasSubstr("rank 0: a worker whose token server is on rank 1"),
                      HasSubstr("from rank 2, which it did not wait for")));
  }
}

TEST(FelaWorkerTest, WhatIsNotInThePlanIsAnErrorThatNamesItsSender) {
  EXPECT_EQ(Heard(Saying(fela::kTrained, 1)), "");
  EXPECT_EQ(Heard(Saying(fela::kTrained, 2)), "");
  for (const uint32_t key : {0U, 3U, UINT32_MAX}) {
    EXPECT_THAT(Heard(Saying(fela::kTrained, key)),
                HasSubstr("rank 0: rank 1 says that sub-model " + std::to_string(key) +
                          " is over, which is not in the plan"));
  }
  EXPECT_EQ(Heard(MessageOf(fela::kOver, fela::Over{3 * kSamples, 0})), "");
  EXPECT_THAT(Heard(MessageOf(fela::kOver, fela::Over{3 * kSamples + 1, 0})),
              HasSubstr("rank 1 says that an iteration of 25 samples is over"));
  EXPECT_EQ(Heard(fela::MessageOfAssignment(Token())), "");
  const auto error_of = [](void (*change)(FelaScheduler::Assignment*)) {
    FelaScheduler::Assignment token = Token();
    change(&token);
    return Heard(fela::MessageOfAssignment(token));
  };
  EXPECT_THAT(error_of([](auto* token) { token->stage = 1; }),
              HasSubstr("rank 0: rank 1 sent token 7 of stage 1, which is not in the plan"));
  EXPECT_THAT(error_of([](auto* token) { token->token = 9 + 7; }),
              HasSubstr("token 16 of stage 2"));
  EXPECT_THAT(error_of([](auto* token) { token->inputs[1].holder = 3; }),
              HasSubstr("token 7 that reads 4 samples of token 2 from rank 3"));
  EXPECT_THAT(error_of([](auto* token) { token->inputs[0].token = 9; }),
              HasSubstr("that reads 4 samples of token 9 from rank 0"));
  EXPECT_THAT(error_of([](auto* token) { token->inputs[0].samples = 9; }),
              HasSubstr("that reads 9 samples"));
  EXPECT_THAT(error_of([](auto* token) { token->ranges[1].first = 21; }),
              HasSubstr("with 4 samples from sample 21 on"));
  EXPECT_THAT(error_of([](auto* token) { token->ranges[1].first = UINT32_MAX; }),
              HasSubstr("with 4 samples from sample 4294967295 on"));
  EXPECT_THAT(error_of([](auto* token) { token->samples = 9; }),
              HasSubstr("of 9 samples that names 8"));
}

TEST(FelaMessagesTest, ASubModelThatOthersTrainIsRefused) {
  FelaScheduler::Assignment read;
  const Message message = fela::MessageOfAssignment(Token());
  EXPECT_EQ(fela::ReadAssignment(message, 2, FelaPlan(Rules()), &read), OkStatus());
  EXPECT_THAT(std::string(fela::ReadAssignment(message, 1, FelaPlan(Rules()), &read).message()),
              HasSubstr("token 7 of sub-model 2, which others train"));
}

TEST(FelaMessagesTest, WhatIsNoTokenIsRefusedAndWhatIsOneLiesInThePlan) {
  const FelaPlan plan(Rules());
  const Message whole = fela::MessageOfAssignment(Token());
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    Message garbled = whole;
    const bool is_cut = random() % 4 == 0;
    garbled.payload =
        Payload::Copy(whole.payload.data(),
                      is_cut ? random() % (whole.payload.size() + 1) : whole.payload.size());
    if (garbled.payload.size() > 0) {  // most numbers stay small
      const size_t at = random() % garbled.payload.size() / 4 * 4;
      static_cast<unsigned char*>(garbled.payload.mutable_data())[at] ^=
          static_cast<unsigned char>(1U << random() % (i % 2 == 0 ? 8 : 4));
    }
    FelaScheduler::Assignment read;
    const Status status = fela::ReadAssignment(garbled, 0, plan, &read);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    ASSERT_LT(read.token, plan.numbers());
    ASSERT_TRUE(read.stage >= 1 && read.stage <= plan.stages());
    for (const FelaScheduler::Input& input : read.inputs) {
      ASSERT_LT(input.token, plan.numbers() / 2);
      ASSERT_LT(input.holder, plan.workers());
      ASSERT_LE(input.samples, 3 * kSamples);
    }
    uint64_t samples = 0;
    for (const FelaScheduler::Range& range : read.ranges) {
      ASSERT_LE(uint64_t{range.first} + range.count, 3 * kSamples);
      samples += range.count;
    }
    ASSERT_EQ(samples, read.samples);
  }
  EXPECT_GT(accepted, 100) << "others are as far from garbage as this";
}

// Every token that a scheduler gives is in the plan.
TEST(FelaMessagesTest, StagesAreThoseOfTheNumbers) {
  const FelaPlan plan(Rules());
  std::vector<uint32_t> stages;
  for (uint32_t token = 0; token <= plan.numbers(); ++token) {
    stages.push_back(plan.StageOf(token));
  }
  const std::vector<uint32_t> expected{1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0};
  EXPECT_EQ(stages, expected);
}

}  // namespace
}  // namespace trepak
