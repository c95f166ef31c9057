#include "horovod_ext/runtime/rna_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "horovod_ext/runtime/rna_fake_job.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::HasSubstr;

// A controller that starts rounds when the test says so.
class ScriptedController : public Endpoint {
 public:
  using Endpoint::Endpoint;
  ~ScriptedController() override { Stop(); }

  void Go() {
    Message go;
    go.header.kind = MessageKind::kGo;
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

// Figure 5.1 of the thesis: w0 is always the initiator. In round 0 w1 is not ready; to round 1 it
// brings two gradients, of x_0 and of x_1; in round 2 both are ready. The learning rate is 1, and a
// gradient is its rank's number and step as digits, so that sums show what is in them.
TEST(RnaWorkerTest, FigureFiveOneIsReplayed) {
  FakeNetwork network;
  Allreduce allreduce(2);
  const std::vector<std::string> addresses = {"worker 0", "worker 1"};
  std::vector<std::unique_ptr<RnaWorker>> workers;
  RnaWorker::Rules rules;
  rules.elements = 1;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    workers.push_back(std::make_unique<RnaWorker>(Endpoint::Options{rank, 2, kDeadline}, rules, 0,
                                                  std::make_shared<SharedReducer>(&allreduce),
                                                  nullptr, std::make_shared<ErrorLatch>()));
    workers[rank]->Attach(network.Make(addresses[rank], workers[rank].get()));
  }
  ScriptedController controller({0, 2, kDeadline}, std::make_shared<ErrorLatch>());
  controller.Attach(network.Make("controller", &controller));
  ASSERT_TRUE(controller.Connect(addresses, {0}).ok());
  for (auto& worker : workers) {
    ASSERT_TRUE(worker->Connect({"controller"}, {0}).ok());
  }
  const auto write = [&](uint32_t rank, float value) {
    ASSERT_TRUE(workers[rank]->Write(GradientOf(value)).ok());
  };
  const auto read = [&](uint32_t rank) { return ReadFrom(workers[rank].get()); };

  write(0, 1);  // of x_0
  controller.Go();
  RnaWorker::Round round = read(0);
  EXPECT_EQ(round.contributors, 1.0);
  EXPECT_EQ(ValueOf(round), 1.0f);

  write(1, 10);  // of x_0: w1 has not read the first round when it begins this step
  EXPECT_EQ(ValueOf(read(1)), 1.0f);
  write(1, 40);  // of x_1
  write(0, 2);   // of x_1
  controller.Go();
  for (const uint32_t rank : {0u, 1u}) {
    round = read(rank);
    EXPECT_EQ(round.contributors, 2.0);
    EXPECT_FLOAT_EQ(ValueOf(round), 2.0f + (1 * 10.0f + 2 * 40.0f) / 3);
  }

  write(1, 70);
  write(0, 3);
  controller.Go();
  for (const uint32_t rank : {0u, 1u}) {
    round = read(rank);
    EXPECT_EQ(round.contributors, 2.0);
    EXPECT_EQ(ValueOf(round), 73.0f);
  }
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
  std::optional<uint32_t> probed;
  for (uint32_t rank = 0; rank < kSize && !probed; ++rank) {
    Job job(kSize, Rules(1, 1, 5));
    ASSERT_TRUE(job.Write(rank, 1.0f).ok());
    std::this_thread::sleep_for(milliseconds(300));
    if (job.worker(rank).finished() == 1) {
      probed = rank;
    }
  }
  ASSERT_TRUE(probed);
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

TEST(RnaWorkerTest, AwaitWaitsForARoundIfThereIsSomethingToBring) {
  Job job(2, Rules(2, 2));
  EXPECT_TRUE(IsReady(job.Await(0))) << "nothing was written";
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::future<Status> waiting = job.Await(0);
  EXPECT_FALSE(IsReady(waiting, milliseconds(50)));
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  ASSERT_TRUE(IsReady(waiting));
  EXPECT_EQ(job.worker(0).finished(), 1u);
  EXPECT_TRUE(IsReady(job.Await(0))) << "a round is there to be read";
}

TEST(RnaWorkerTest, WhoWaitsTooLongFailsAndSaysForWhat) {
  Job job(2, Rules(2, 2), 100, milliseconds(200));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::future<Status> waiting = job.Await(0);
  ASSERT_TRUE(IsReady(waiting));
  const Status status = waiting.get();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("too few ranks have gradients"));
}

TEST(RnaWorkerTest, WhoEndsFirstLeavesOthersTheirLastRound) {
  Job job(2, Rules(2));
  job.Hold(1, true);
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  std::future<Status> first = job.Drain(0);
  std::future<Status> last = job.Drain(1);
  ASSERT_TRUE(IsReady(first));
  EXPECT_TRUE(first.get().ok());
  job.Leave(0, 0);
  EXPECT_FALSE(IsReady(last, milliseconds(500)));  // it has time to miss the controller
  job.Hold(1, false);
  ASSERT_TRUE(IsReady(last));
  const Status status = last.get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RnaWorkerTest, AnAlignedStepBelongsToTheRoundOfItsNumber) {
  RnaWorker::Rules aligned;
  aligned.aligned = true;
  aligned.combine = RnaContributions::Combine::kSum;
  Job job(2, Rules(2), aligned);
  for (uint64_t step = 0; step < 2; ++step) {  // rank 0 starts two rounds by itself
    ASSERT_TRUE(job.Write(0, 1.0f).ok());
    std::future<Status> waiting = job.Await(0);
    ASSERT_TRUE(IsReady(waiting));
    EXPECT_EQ(job.Read(0).number, step);
  }
  for (int step = 0; step < 2; ++step) {  // rank 1 comes late to both
    ASSERT_TRUE(job.Write(1, 1.0f).ok());
    EXPECT_TRUE(IsReady(job.Await(1)));
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(job.worker(1).counters().rounds, 2u);  // and starts none
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  ASSERT_TRUE(IsReady(job.Await(1)));
  EXPECT_EQ(ValueOf(job.Read(0)), 3.0f);  // of all that it has brought
  // After a drain all are at the same step.
  std::future<Status> first = job.Drain(0);
  std::future<Status> second = job.Drain(1);
  ASSERT_TRUE(IsReady(first) && IsReady(second));
  ASSERT_TRUE(job.Write(1, 2.0f).ok());
  ASSERT_TRUE(IsReady(job.Await(1)));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  EXPECT_TRUE(IsReady(job.Await(0)));
  EXPECT_EQ(ValueOf(job.Read(0)), 2.0f);
}

TEST(RnaWorkerTest, RanksThatNeverDrainAreNamed) {
  Job job(3, Rules(2), 100, milliseconds(200));
  std::future<Status> drain = job.Drain(1);
  ASSERT_TRUE(IsReady(drain));
  EXPECT_THAT(std::string(drain.get().message()), HasSubstr("for rank 0, rank 2 to come to"));
}

TEST(RnaWorkerTest, ALostRankEndsWhatOthersWaitFor) {
  Job job(3, Rules(3, 3));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::future<Status> waiting = job.Await(0);
  job.network.Cut("worker 2");
  ASSERT_TRUE(IsReady(waiting));
  EXPECT_THAT(std::string(waiting.get().message()), HasSubstr("rank 2"));
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (job.Write(1, 1.0f).ok() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(job.Write(1, 1.0f).ok()) << "rank 0 tells the others";
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
