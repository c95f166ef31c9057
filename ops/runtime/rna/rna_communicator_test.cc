#include "ops/runtime/rna/rna_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/parameters/fake_parameters.h"
#include "ops/runtime/parameters/summation.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Sums with another rank that brings the same.
class Doubling : public CollectiveCalls {
 public:
  Status StartSum(Sum sum) override {
    names.push_back(sum.name);
    if (hangs) {
      late = std::move(sum.done);
      hung = true;
    } else if (fails) {
      sum.done(UnavailableError("Horovod has been shut down"));
    } else {
      Scale(sum.type, sum.input.size(), 2.0, sum.input.data(), sum.output.mutable_data());
      sum.done(OkStatus());
    }
    return OkStatus();
  }

  std::vector<std::string> names;
  std::atomic<bool> hangs{false};
  std::atomic<bool> hung{false};
  std::atomic<bool> fails{false};
  Done late;  // of what hangs
};

template <typename T>
Payload Number(T value) {
  return Payload::Copy(&value, sizeof(value));
}

class RnaCommunicatorTest : public testing::Test {
 protected:
  // Begins, with one number of that type.
  void Start(ElementType type = ElementType::kFloat32) {
    RnaRules rules;
    rules.type = type;
    rules.elements = 1;
    rules.sum = "a sum";
    rules.timeline = &timeline_;
    rules.row = 2;
    rules.run = 6;
    contributor_.emplace(rules, "rank 7",
                         [](MessageKind, uint64_t, uint8_t) { return OkStatus(); });
    exchange_.emplace(rules, "rank 7", nullptr);
    inbox_.emplace(rules, &*contributor_, errors_);
    communicator_.emplace(
        rules, 4, RnaCommunicator::Parts{&*contributor_, &*exchange_, &*inbox_}, calls_, errors_,
        [this](uint64_t round, const Status& status) {
          failed_.set_value(std::to_string(round) + ": " + std::string(status.message()));
        });
  }

  void Push(uint64_t number, bool is_exchange = false) {
    RnaRound round;
    round.number = number;
    round.initiator = 9;
    round.is_exchange = is_exchange;
    if (!is_exchange) {
      contributor_->Start();
    }
    communicator_->Push(round);
  }

  template <typename T>
  void Write(T value, uint64_t samples = 1) {
    ASSERT_TRUE(contributor_->Write({Number(value), inbox_->GoOn(), samples, 0.25}, {}).ok());
  }

  RnaRound Read() {
    while (inbox_->finished() == 0) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    RnaRound round;
    EXPECT_TRUE(inbox_->Read(&round));
    return round;
  }

  const std::shared_ptr<ErrorLatch> errors_ = std::make_shared<ErrorLatch>();
  const std::shared_ptr<Doubling> calls_ = std::make_shared<Doubling>();
  std::promise<std::string> failed_;
  Timeline timeline_;
  std::optional<RnaContributor> contributor_;
  std::optional<RnaExchange> exchange_;
  std::optional<RnaInbox> inbox_;
  std::optional<RnaCommunicator> communicator_;
};

TEST_F(RnaCommunicatorTest, ARoundSumsWhatIsThereAndHowMuchThatIs) {
  constexpr uint64_t kMany = 123'456'789;  // a float counts exactly up to 16 millions
  Start();
  Write(3.0f, kMany);
  Push(0);
  const RnaRound round = Read();
  EXPECT_EQ(round.number, 0u);
  EXPECT_EQ(round.initiator, 9u);
  EXPECT_EQ(round.sum.size(), sizeof(float));
  EXPECT_EQ(*static_cast<const float*>(round.sum.data()), 6.0f);
  EXPECT_EQ(round.contributors, 2.0);
  EXPECT_EQ(round.samples, 2 * kMany);
  EXPECT_EQ(round.rate, 0.25) << "the mean";
}

TEST_F(RnaCommunicatorTest, NullGradientsHaveNoRate) {
  Start(ElementType::kFloat64);
  Write(3.0);
  Push(0);
  Push(1);
  const RnaRound first = Read();
  EXPECT_EQ(*static_cast<const double*>(first.sum.data()), 6.0);
  EXPECT_EQ(first.rate, 0.25);
  const RnaRound second = Read();
  EXPECT_EQ(*static_cast<const double*>(second.sum.data()), 0.0);
  EXPECT_EQ(second.contributors, 0.0);
  EXPECT_EQ(second.rate, 0.0);
}

TEST_F(RnaCommunicatorTest, ARoundWithContributorsMakesWhatWasBegunBeforeStale) {
  Start();
  Write(1.0f);
  Push(0);
  while (inbox_->finished() == 0) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  Write(1.0f);  // of before what was not read
  Push(1);
  EXPECT_EQ(Read().number, 0u);
  EXPECT_EQ(Read().number, 1u);
  EXPECT_EQ(inbox_->counters().staleness, 1u);
}

TEST_F(RnaCommunicatorTest, TheOutcomeOfAnExchangeIsBroughtInTheRoundsOrder) {
  Start();
  exchange_->Begin(Number(1.0f), 0);
  exchange_->Keep(Number(8.0f), 30);
  Push(0);
  Push(0, true);
  Push(1);
  while (inbox_->counters().rounds < 2) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  communicator_->Stop();
  EXPECT_THAT(calls_->names, ElementsAre("a sum", "a sum", "a sum"));
  EXPECT_EQ(inbox_->finished(), 2u) << "the outcome is not one of them";
  EXPECT_TRUE(exchange_->Take().parts.empty());
}

TEST_F(RnaCommunicatorTest, WhatFailsEndsTheThread) {
  Start();
  calls_->fails = true;
  Push(3);
  Push(4);
  std::future<std::string> failed = failed_.get_future();
  EXPECT_EQ(failed.wait_for(milliseconds(100)), std::future_status::timeout)
      << "flows may say who has died";
  errors_->Latch(UnavailableError("rank 3 was lost"));
  communicator_->Wake();
  ASSERT_EQ(failed.wait_for(milliseconds(1500)), std::future_status::ready);
  EXPECT_EQ(failed.get(), "3: Horovod has been shut down");
  communicator_->Stop();
  EXPECT_THAT(calls_->names, ElementsAre("a sum"));
}

TEST_F(RnaCommunicatorTest, ASumIsGivenUpAfterAnError) {
  calls_->hangs = true;
  Start();
  Push(1);
  std::future<std::string> failed = failed_.get_future();
  EXPECT_EQ(failed.wait_for(milliseconds(50)), std::future_status::timeout);
  errors_->Latch(UnavailableError("rank 3 was lost"));
  EXPECT_EQ(failed.get(), "1: nobody wants its result any more");
}

TEST_F(RnaCommunicatorTest, ASumIsGivenUpAtTheEnd) {
  calls_->hangs = true;
  Start();
  Push(0);
  while (!calls_->hung) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  communicator_->Stop();
  EXPECT_EQ(failed_.get_future().get(), "0: nobody wants its result any more");
  communicator_.reset();
  calls_->late(OkStatus());  // to nobody
}

TEST_F(RnaCommunicatorTest, TheTimelineShowsWhatWasDone) {
  const std::string path = testing::TempDir() + "rna_communicator_test.json";
  ASSERT_TRUE(timeline_.Open(path, 7, "rank 7", "{}", 0, 0, 1).ok());
  Start();
  Write(1.0f);
  Write(1.0f);
  Push(0);
  Push(0, true);
  Push(1);
  while (inbox_->counters().rounds < 2) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(timeline_.Close().ok());
  std::stringstream shown;
  shown << std::ifstream(path).rdbuf();
  EXPECT_THAT(shown.str(), HasSubstr("round 0: 2 gradients"));
  EXPECT_THAT(shown.str(),
              HasSubstr("{\"round\":0,\"gradients\":2,\"staleness\":0,\"contributors\":2,"
                        "\"initiator\":9,\"group\":4,\"run\":6}"));
  EXPECT_THAT(shown.str(), HasSubstr("exchange after round 0"));
  EXPECT_THAT(shown.str(), HasSubstr("{\"group\":4,\"run\":6}"));
  EXPECT_THAT(shown.str(), HasSubstr("round 1: null gradient"));
  EXPECT_THAT(shown.str(), HasSubstr("{\"round\":1,\"gradients\":0,\"contributors\":0,"
                                     "\"initiator\":9,\"group\":4,\"run\":6}"));
}

}  // namespace
}  // namespace trepak
