#include "ops/runtime/rna/rna_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "ops/runtime/rna/rna_fake_job.h"
#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::HasSubstr;

// A coordinator that starts rounds when the test says so.
class ScriptedCoordinator : public Endpoint {
 public:
  using Endpoint::Endpoint;
  ~ScriptedCoordinator() override { Stop(); }

  void Go() {
    Message go;
    go.header.kind = rna::kGo;
    go.header.round = round_++;
    Broadcast(go);
  }

 protected:
  Status Handle(Message) override { return OkStatus(); }
  Status Tick(Clock::time_point) override { return OkStatus(); }
  void Failed(const Status&) override {}

 private:
  uint64_t round_ = 0;
};

// A rank's parameters in training: one number, on which its gradients depend.
struct Replica {
  float x = 64;
  double applied_rate = 0;  // of the latest round

  // The thesis' update: w is 1 for a contributor, else 0, W = 1 / (sum of w), and a round is
  // applied at that many n-th parts of the rate that is meant for all n ranks.
  void Apply(const RnaWorker::Round& round, int n) {
    applied_rate = round.rate * round.contributors / n;
    x -= static_cast<float>(applied_rate / round.contributors) * ValueOf(round);
  }
};

// Figure 5.1 of the thesis: w0 is always the initiator. In round 0 w1 is not ready; to round 1 it
// brings two gradients, of x_0 and of x_1; in round 2 both are ready, w1 first. The gradient of w0
// is x and that of w1 is 3 x, and both halve their rate of 1/2 in the course. All that is expected
// was worked out by hand.
TEST(RnaWorkerTest, FigureFiveOneIsReplayed) {
  FakeNetwork network;
  Allreduce allreduce(2);
  const std::vector<std::string> addresses = {"worker 0", "worker 1"};
  std::vector<std::unique_ptr<RnaWorker>> workers;
  RnaWorker::Rules rules;
  rules.elements = 1;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    workers.push_back(std::make_unique<RnaWorker>(Endpoint::Options{rank, 2, kDeadline}, rules, 0,
                                                  std::make_shared<Allreduce::Rank>(&allreduce),
                                                  nullptr, std::make_shared<ErrorLatch>()));
    workers[rank]->Attach(network.Make(addresses[rank], workers[rank].get()));
  }
  ScriptedCoordinator coordinator({0, 2, kDeadline}, std::make_shared<ErrorLatch>());
  coordinator.Attach(network.Make("coordinator", &coordinator));
  ASSERT_TRUE(coordinator.Connect(addresses, {0}).ok());
  for (auto& worker : workers) {
    ASSERT_TRUE(worker->Connect({"coordinator"}, {0}).ok());
  }
  std::vector<Replica> replicas(2);
  const auto step = [&](uint32_t rank, double rate) {
    const float gradient = replicas[rank].x * (rank == 0 ? 1.0f : 3.0f);
    ASSERT_TRUE(workers[rank]->Write(GradientOf(gradient, 1, rate)).ok());
  };
  struct Expected {
    double contributors, rate, applied_rate;
    float sum, x;
  };
  const auto apply = [&](uint32_t rank, const Expected& expected) {
    const RnaWorker::Round round = ReadFrom(workers[rank].get());
    replicas[rank].Apply(round, 2);
    EXPECT_EQ(round.contributors, expected.contributors) << "round " << round.number;
    EXPECT_EQ(round.rate, expected.rate) << "round " << round.number;
    EXPECT_EQ(replicas[rank].applied_rate, expected.applied_rate) << "round " << round.number;
    EXPECT_FLOAT_EQ(ValueOf(round), expected.sum) << "round " << round.number;
    EXPECT_FLOAT_EQ(replicas[rank].x, expected.x) << "after round " << round.number;
  };

  // x_1 = 64 - 1/4 * 64: a null gradient lowers the rate, and not the mean.
  const Expected first = {1.0, 0.5, 0.25, 64.0f, 48.0f};
  step(0, 0.5);
  coordinator.Go();
  apply(0, first);

  // x_2 = 48 - 3/8 * (48 + g') / 2 with w1's g' = (1 * 192 + 2 * 144) / 3 = 160, at its later rate.
  const Expected second = {2.0, 0.375, 0.375, 208.0f, 9.0f};
  step(1, 0.5);  // of x_0: w1 has not read the first round when it begins this step
  apply(1, first);
  step(1, 0.25);  // of x_1
  step(0, 0.5);   // of x_1
  coordinator.Go();
  apply(0, second);
  apply(1, second);

  // x_3 = 9 - 1/4 * (9 + 27) / 2
  const Expected third = {2.0, 0.25, 0.25, 36.0f, 4.5f};
  step(1, 0.25);
  step(0, 0.25);
  coordinator.Go();
  apply(0, third);
  apply(1, third);
  EXPECT_EQ(workers[1]->counters().contributed, 2u);
  EXPECT_EQ(workers[1]->counters().gradients, 3u);
  for (auto& worker : workers) {
    worker->Cancel(CancelledError("the test is over"));
  }
}

TEST(RnaWorkerTest, OneRankStartsTheRoundOfAll) {
  Job job(3, Rules(3));
  ASSERT_TRUE(job.Write(1, 5.0f, 32).ok());
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const RnaWorker::Round round = job.Read(rank);
    EXPECT_EQ(round.number, 0u);
    EXPECT_EQ(ValueOf(round), 5.0f);
    EXPECT_EQ(round.contributors, 1.0);
    EXPECT_EQ(round.samples, 32.0);
  }
  EXPECT_EQ(job.worker(0).counters().contributed, 0u);
  EXPECT_EQ(job.worker(1).counters().contributed, 1u);
}

TEST(RnaWorkerTest, RoundsWaitForTheProbedAlone) {
  // One of eight is probed, the same one with the same seed: whoever else has gradients waits.
  constexpr uint32_t kSize = 8;
  std::vector<std::unique_ptr<Job>> jobs;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    jobs.push_back(std::make_unique<Job>(kSize, Rules(1, 1, 5)));
    ASSERT_TRUE(jobs[rank]->Write(rank, 1.0f).ok());
  }
  std::optional<uint32_t> probed;
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  for (uint32_t rank = 0; !probed; rank = (rank + 1) % kSize) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "nobody is probed";
    if (jobs[rank]->worker(rank).finished() == 1) {
      probed = rank;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  jobs.clear();
  Job job(kSize, Rules(1, 1, 5));
  const uint32_t other = (*probed + 1) % kSize;
  ASSERT_TRUE(job.Write(other, 1.0f).ok());
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(job.worker(other).finished(), 0u);
  ASSERT_TRUE(job.Write(*probed, 2.0f).ok());
  EXPECT_EQ(ValueOf(job.Read(other)), 3.0f);
}

TEST(RnaWorkerTest, ARoundIsAppliedAtTheContributorsMeanRate) {
  Job job(3, Rules(3, 2));
  ASSERT_TRUE(job.Write(0, 1.0f, 1, 0.5).ok());
  ASSERT_TRUE(job.Write(2, 1.0f, 1, 0.25).ok());
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_FLOAT_EQ(static_cast<float>(job.Read(rank).rate), 0.375f);
  }
}

TEST(RnaWorkerTest, GradientsThatAreNotFiniteDoNotHoldUpWhoWaits) {
  Job job(2, Rules(2, 2));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.worker(rank).Write({Payload(), 0, 4, 0.1}).ok());
  }
  const RnaWorker::Round round = job.Read(0);
  EXPECT_EQ(round.contributors, 0.0);
  EXPECT_EQ(round.samples, 8.0);
  EXPECT_EQ(job.worker(1).counters().not_finite, 1u);
}

TEST(RnaWorkerTest, RoundsOfNullGradientsMakeNobodysGradientsStale) {
  Job job(2, Rules(2, 1), 0);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(job.worker(0).Write({Payload(), 0, 4, 0.1}).ok());
    EXPECT_EQ(job.Read(0).contributors, 0.0);
  }
  ASSERT_TRUE(job.Write(1, 3.0f).ok());  // computed with the parameters of before
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(job.Read(1).contributors, 0.0);
  }
  EXPECT_EQ(ValueOf(job.Read(1)), 3.0f);
  EXPECT_EQ(job.worker(1).counters().dropped, 0u);
  EXPECT_EQ(job.worker(1).counters().staleness, 0u);
}

TEST(RnaWorkerTest, AQuorumOfAllIsBulkSynchronous) {
  Job job(4, Rules(1, 4));
  for (int step = 0; step < 20; ++step) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(job.worker(rank).finished(), 0u) << "before all have written";
      ASSERT_TRUE(job.Write(rank, static_cast<float>(rank + 1)).ok());
    }
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const RnaWorker::Round round = job.Read(rank);
      EXPECT_EQ(ValueOf(round), 10.0f);
      EXPECT_EQ(round.contributors, 4.0);
      EXPECT_EQ(round.number, static_cast<uint64_t>(step));
    }
  }
}

TEST(RnaWorkerTest, DrainBringsWhatIsLeftAndStopsAllAtTheSameRound) {
  Job job(3, Rules(3, 1, 7));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.Write(rank, 1.0f).ok());
  }
  std::vector<std::future<Status>> drains;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    drains.push_back(job.Drain(rank));
  }
  for (auto& drain : drains) {
    ASSERT_TRUE(IsReady(drain));
    EXPECT_TRUE(drain.get().ok());
  }
  std::vector<float> sums;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    float sum = 0;
    for (size_t left = job.worker(rank).finished(); left > 0; --left) {
      sum += ValueOf(job.Read(rank));
    }
    sums.push_back(sum);
  }
  EXPECT_THAT(sums, Each(3.0f));
  // Training goes on: rounds of later phases are not read by who has not begun it.
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  job.Read(0);
  EXPECT_EQ(job.worker(2).finished(), 0u);
  ASSERT_TRUE(job.Write(2, 1.0f).ok());
  EXPECT_GT(job.Read(2).contributors, 0.0);
}

TEST(RnaWorkerTest, DrainsOfSomeLetTheOthersGoOn) {
  Job job(3, Rules(2, 1, 3));
  std::future<Status> first = job.Drain(0);
  std::future<Status> second = job.Drain(1);
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(job.Write(2, 1.0f).ok());
    EXPECT_EQ(ValueOf(job.Read(2)), 1.0f);
  }
  EXPECT_FALSE(IsReady(first, milliseconds(50)));
  ASSERT_TRUE(IsReady(job.Drain(2)));
  EXPECT_TRUE(IsReady(first) && IsReady(second));
  EXPECT_EQ(job.worker(0).finished(), 10u);
}

// Random writes, reads and drains: whatever the schedule, all ranks see the same rounds, and each
// gradient is in exactly one of them or was dropped.
TEST(RnaWorkerTest, EveryGradientCountsOnceWhateverTheSchedule) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::mt19937_64 random(seed);
    Job job(4, Rules(2, 1, seed), seed % 2 == 0 ? 1000 : 1);
    uint64_t written = 0;
    std::vector<std::vector<float>> seen(4);
    for (int phase = 0; phase < 3; ++phase) {
      for (int action = 0; action < 200; ++action) {
        const auto rank = static_cast<uint32_t>(random() % 4);
        if (random() % 3 != 0) {
          ASSERT_TRUE(job.Write(rank, 1.0f).ok());
          ++written;
        } else if (job.worker(rank).finished() > 0) {
          seen[rank].push_back(ValueOf(job.Read(rank)));
        }
        if (random() % 20 == 0) {
          std::this_thread::sleep_for(milliseconds(1));
        }
      }
      std::vector<std::future<Status>> drains;
      for (uint32_t rank = 0; rank < 4; ++rank) {
        drains.push_back(job.Drain(rank));
      }
      for (uint32_t rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(IsReady(drains[rank]));
        ASSERT_TRUE(drains[rank].get().ok());
        for (size_t left = job.worker(rank).finished(); left > 0; --left) {
          seen[rank].push_back(ValueOf(job.Read(rank)));
        }
      }
      EXPECT_THAT(seen, Each(seen[0])) << "seed " << seed;
    }
    uint64_t counted = 0;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const RnaWorker::Counters counters = job.worker(rank).counters();
      counted += counters.gradients + counters.dropped;
      EXPECT_EQ(counters.rounds, seen[0].size());
    }
    EXPECT_EQ(counted, written) << "seed " << seed;
  }
}

TEST(RnaWorkerTest, WrongWritesAreExplained) {
  Job job(2);
  const Status wrong = job.worker(0).Write({Payload::Allocate(8), 0, 1, 0.1});
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("8 bytes of gradients, not 4"));
  RnaWorker::Round round;
  EXPECT_THAT(std::string(job.worker(0).Read(&round).message()), HasSubstr("none has finished"));
  const std::future<Status> first = job.Drain(0);
  EXPECT_THAT(std::string(job.Drain(0).get().message()), HasSubstr("twice"));
  EXPECT_THAT(std::string(job.Write(0, 1.0f).message()), HasSubstr("while it drains"));
}

}  // namespace
}  // namespace trepak
