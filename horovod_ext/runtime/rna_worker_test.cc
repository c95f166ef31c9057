#include "horovod_ext/runtime/rna_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <random>

#include "horovod_ext/runtime/fake_network.h"
#include "horovod_ext/runtime/rna_controller.h"
#include "horovod_ext/runtime/summation.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kDeadline{20'000};

// What Horovod does in a real job: a round's sum is there when all ranks have brought their part.
class Allreduce {
 public:
  explicit Allreduce(uint32_t size) : size_(size) {}

  Status Sum(uint64_t round, ElementType type, const Payload& buffer,
             const std::function<bool()>& given_up) {
    std::unique_lock<std::mutex> lock(mutex_);
    Meeting& meeting = meetings_[round];
    meeting.parts.push_back(buffer);
    if (meeting.parts.size() == size_) {
      Payload sum = meeting.parts[0];
      for (uint32_t i = 1; i < size_; ++i) {
        Accumulate(type, buffer.size(), 1.0, meeting.parts[i].data(), sum.mutable_data());
      }
      for (uint32_t i = 1; i < size_; ++i) {
        const char* const from = static_cast<const char*>(sum.data());
        std::copy(from, from + sum.size(), static_cast<char*>(meeting.parts[i].mutable_data()));
      }
      meeting.done = true;
      changed_.notify_all();
    }
    while (!meeting.done) {
      if (given_up()) {
        return CancelledError("given up");
      }
      changed_.wait_for(lock, milliseconds(5));
    }
    return OkStatus();
  }

 private:
  struct Meeting {
    std::vector<Payload> parts;
    bool done = false;
  };
  const uint32_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Meeting> meetings_;  // Guarded by mutex_.
};

class SharedReducer : public RoundReducer {
 public:
  explicit SharedReducer(Allreduce* allreduce) : allreduce_(allreduce) {}
  Status Sum(uint64_t round, ElementType type, const Payload& buffer,
             const std::function<bool()>& given_up) override {
    return allreduce_->Sum(round, type, buffer, given_up);
  }

 private:
  Allreduce* const allreduce_;
};

// All ranks of a job in one process. Gradients are one number.
class Job {
 public:
  explicit Job(uint32_t size, RnaController::Rules rules = {}, uint64_t staleness = 100,
               milliseconds deadline = kDeadline)
      : allreduce_(size) {
    std::vector<std::string> addresses;
    for (uint32_t rank = 0; rank < size; ++rank) {
      addresses.push_back("worker " + std::to_string(rank));
      errors_.push_back(std::make_shared<ErrorLatch>());
    }
    RnaWorker::Rules worker_rules;
    worker_rules.elements = 1;
    worker_rules.staleness = staleness;
    for (uint32_t rank = 0; rank < size; ++rank) {
      const Endpoint::Options options{rank, size, deadline};
      workers_.push_back(std::make_unique<RnaWorker>(
          options, worker_rules, 0, std::make_shared<SharedReducer>(&allreduce_), errors_[rank]));
      workers_[rank]->Attach(network.Make(addresses[rank], workers_[rank].get()));
    }
    const Endpoint::Options options{0, size, deadline};
    controller_ = std::make_unique<RnaController>(options, rules, errors_[0]);
    controller_->Attach(network.Make("controller", controller_.get()));
    for (auto& worker : workers_) {
      EXPECT_TRUE(worker->Connect({"controller"}, {0}).ok());
    }
    EXPECT_TRUE(controller_->Connect(addresses, {0}).ok());
  }

  ~Job() {
    for (auto& worker : workers_) {
      worker->Cancel(CancelledError("the test is over"));
    }
    controller_.reset();
    workers_.clear();
  }

  Status Write(uint32_t rank, float value, uint64_t samples = 1) {
    Payload gradient = Payload::Allocate(sizeof(float));
    *static_cast<float*>(gradient.mutable_data()) = value;
    return workers_[rank]->Write(std::move(gradient), samples);
  }

  // Waits until a rank has rounds to read, and reads one.
  RnaWorker::Round Read(uint32_t rank) {
    RnaWorker::Round round;
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (workers_[rank]->finished() == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    const Status status = workers_[rank]->Read(&round);
    EXPECT_TRUE(status.ok()) << status;
    return round;
  }

  std::future<Status> Drain(uint32_t rank) {
    auto promise = std::make_shared<std::promise<Status>>();
    workers_[rank]->Drain([promise](const Status& status) { promise->set_value(status); });
    return promise->get_future();
  }

  std::future<Status> Await(uint32_t rank) {
    auto promise = std::make_shared<std::promise<Status>>();
    workers_[rank]->Await([promise](const Status& status) { promise->set_value(status); });
    return promise->get_future();
  }

  RnaWorker& worker(uint32_t rank) { return *workers_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(workers_.size()); }

 public:
  FakeNetwork network;  // outlives the ranks

 private:
  Allreduce allreduce_;
  std::vector<std::shared_ptr<ErrorLatch>> errors_;
  std::vector<std::unique_ptr<RnaWorker>> workers_;
  std::unique_ptr<RnaController> controller_;
};

float ValueOf(const RnaWorker::Round& round) {
  return *static_cast<const float*>(round.sum.data());
}

RnaController::Rules Rules(uint32_t choices, uint32_t quorum = 1, uint64_t seed = 0) {
  RnaController::Rules rules;
  rules.choices = choices;
  rules.quorum = quorum;
  rules.seed = seed;
  return rules;
}

bool IsReady(const std::future<Status>& future, milliseconds patience = kDeadline) {
  return future.wait_for(patience) == std::future_status::ready;
}

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
                                                  std::make_shared<ErrorLatch>()));
    workers[rank]->Attach(network.Make(addresses[rank], workers[rank].get()));
  }
  ScriptedController controller({0, 2, kDeadline}, std::make_shared<ErrorLatch>());
  controller.Attach(network.Make("controller", &controller));
  ASSERT_TRUE(controller.Connect(addresses, {0}).ok());
  for (auto& worker : workers) {
    ASSERT_TRUE(worker->Connect({"controller"}, {0}).ok());
  }
  const auto write = [&](uint32_t rank, float value) {
    Payload gradient = Payload::Allocate(sizeof(float));
    *static_cast<float*>(gradient.mutable_data()) = value;
    ASSERT_TRUE(workers[rank]->Write(std::move(gradient), 1).ok());
  };
  const auto read = [&](uint32_t rank) {
    RnaWorker::Round round;
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (workers[rank]->finished() == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(workers[rank]->Read(&round).ok());
    return round;
  };

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
  // Of two ranks, one is probed: a round starts only when that one has gradients.
  Job job(2, Rules(1));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::this_thread::sleep_for(milliseconds(100));
  const bool probed_0 = job.worker(0).finished() == 1;
  ASSERT_TRUE(job.Write(1, 2.0f).ok());
  const RnaWorker::Round first = job.Read(1);
  EXPECT_EQ(ValueOf(first), probed_0 ? 1.0f : 3.0f);
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
  Job job(3, Rules(1, 1, 7));
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
  EXPECT_FALSE(job.Write(1, 1.0f).ok());
}

TEST(RnaWorkerTest, WrongWritesAreExplained) {
  Job job(2);
  EXPECT_THAT(std::string(job.worker(0).Write(Payload::Allocate(8), 1).message()),
              HasSubstr("8 bytes of gradients, not 4"));
  RnaWorker::Round round;
  EXPECT_THAT(std::string(job.worker(0).Read(&round).message()), HasSubstr("none has finished"));
  const std::future<Status> first = job.Drain(0);
  EXPECT_THAT(std::string(job.Drain(0).get().message()), HasSubstr("twice"));
  EXPECT_THAT(std::string(job.Write(0, 1.0f).message()), HasSubstr("while it drains"));
}

}  // namespace
}  // namespace trepak
