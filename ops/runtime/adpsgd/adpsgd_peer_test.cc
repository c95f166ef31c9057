#include "ops/runtime/adpsgd/adpsgd_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "ops/runtime/net/fake_peers.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kDeadline{20'000};

// All ranks of a job in one process. A model is one number.
class Job : public FakePeers<AdpsgdPeer> {
 public:
  explicit Job(uint32_t size, milliseconds deadline = kDeadline)
      : FakePeers(size, [=](uint32_t rank) {
          AdpsgdPeer::Rules rules;
          rules.type = ElementType::kFloat64;
          rules.elements = 1;
          return std::make_shared<AdpsgdPeer>(Endpoint::Options{rank, size, deadline}, rules,
                                              std::make_shared<ErrorLatch>());
        }) {}

  static Payload Number(double value) { return Payload::Copy(&value, sizeof(value)); }

  // A step that changes the model by so much.
  Status Step(uint32_t rank, double change, uint64_t samples = 1) {
    return peer(rank).Add(Number(Value(rank) + change), samples);
  }

  double Value(uint32_t rank) {
    Payload values;
    EXPECT_TRUE(peer(rank).Load(&values).ok());
    return *static_cast<const double*>(values.data());
  }

  Status Settle(uint32_t rank) {
    auto promise = std::make_shared<std::promise<Status>>();
    peer(rank).Settle([promise](const Status& status) { promise->set_value(status); });
    std::future<Status> future = promise->get_future();
    return future.wait_for(kDeadline) == std::future_status::ready
               ? future.get()
               : InternalError("it never settled");
  }
};

TEST(AdpsgdPeerTest, TwoRanksMeetInTheMiddle) {
  Job job(2);
  ASSERT_TRUE(job.peer(0).Assign(Job::Number(4)).ok());
  ASSERT_TRUE(job.peer(1).Assign(Job::Number(10)).ok());
  ASSERT_TRUE(job.Step(0, 2, 32).ok());
  ASSERT_TRUE(job.Settle(0).ok());
  EXPECT_EQ(job.Value(0), 8.0);
  EXPECT_EQ(job.Value(1), 8.0);
  EXPECT_EQ(job.peer(1).TakeSamples(), 32u);
  EXPECT_EQ(job.peer(1).counters().averagings, 1u);
}

TEST(AdpsgdPeerTest, NoStepIsLostWhateverTheSchedule) {
  constexpr uint32_t kSize = 5;
  constexpr int kSteps = 300;
  Job job(kSize);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&job, rank] {
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_TRUE(job.Step(rank, rank + 1.0, 1).ok());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  double sum = 0;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    ASSERT_TRUE(job.Settle(rank).ok());
  }
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    sum += job.Value(rank);
    EXPECT_EQ(job.peer(rank).counters().steps, static_cast<uint64_t>(kSteps));
  }
  EXPECT_NEAR(sum, kSteps * (1 + 2 + 3 + 4 + 5), 1e-6);
}

TEST(AdpsgdPeerTest, AveragingBringsRanksTogether) {
  Job job(4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(job.peer(rank).Assign(Job::Number(100.0 * rank)).ok());
  }
  for (int step = 0; step < 200; ++step) {
    for (const uint32_t active : {0u, 2u}) {
      ASSERT_TRUE(job.Step(active, 0, 1).ok());
      ASSERT_TRUE(job.Settle(active).ok());
    }
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(job.Value(rank), 150.0, 1e-3);
  }
}

TEST(AdpsgdPeerTest, WhoSettlesTellsAllHowManySamplesThereWere) {
  Job job(4);
  ASSERT_TRUE(job.Step(2, 0, 32).ok());
  ASSERT_TRUE(job.Step(3, 0, 16).ok());
  ASSERT_TRUE(job.Settle(2).ok());
  ASSERT_TRUE(job.Settle(3).ok());
  while (!job.network.Idle()) {  // rank 3 waits for nobody, not for those whom it tells either
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(job.peer(rank).TakeSamples(), 48u) << rank;
  }
}

TEST(AdpsgdPeerTest, ALostRankIsNamed) {
  Job job(2);
  job.network.SetFault([](const std::string&, const Message& message) {
    return message.header.kind == adpsgd::kAverage ? FakeNetwork::Fate::kLose
                                                   : FakeNetwork::Fate::kArrive;
  });
  ASSERT_TRUE(job.Step(0, 1, 1).ok());
  job.network.Cut("peer 1");
  EXPECT_THAT(std::string(job.Settle(0).message()), HasSubstr("rank 1"));
  EXPECT_FALSE(job.peer(0).Add(Job::Number(1), 1).ok());
}

TEST(AdpsgdPeerTest, WaitingHasADeadline) {
  Job job(2, milliseconds(200));
  job.network.SetFault([](const std::string&, const Message&) { return FakeNetwork::Fate::kLose; });
  ASSERT_TRUE(job.Step(0, 1, 1).ok());
  EXPECT_THAT(std::string(job.Settle(0).message()), HasSubstr("for rank 1 to average"));
}

TEST(AdpsgdPeerTest, WhatTrainingWasShownIsWhatItsChangesAreOf) {
  Job job(1);
  ASSERT_TRUE(job.peer(0).Assign(Job::Number(4)).ok());
  ASSERT_TRUE(job.peer(0).Show(Job::Number(100)).ok());  // the mean of all ranks, for instance
  ASSERT_TRUE(job.peer(0).Add(Job::Number(103), 1).ok());
  ASSERT_TRUE(job.peer(0).Add(Job::Number(105), 1).ok());
  EXPECT_EQ(job.Value(0), 9.0);
}

TEST(AdpsgdPeerTest, OtherModelsAreRefused) {
  Job job(2);
  EXPECT_THAT(std::string(job.peer(0).Add(Payload::Allocate(24), 1).message()),
              HasSubstr("24 bytes of parameters, not 8"));
  EXPECT_FALSE(job.peer(0).Assign(Payload::Allocate(24)).ok());
}

}  // namespace
}  // namespace trepak
