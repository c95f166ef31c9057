#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "ops/runtime/rna/rna_exchange.h"
#include "ops/runtime/rna/rna_fake_job.h"
#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

Payload Number(float value) { return Payload::Copy(&value, sizeof(value)); }

float NumberIn(const Payload& payload) { return *static_cast<const float*>(payload.data()); }

// A rank that trains: its parameters are one number, to which each round adds its mean.
class Trainer {
 public:
  Trainer(Job* job, uint32_t rank) : job_(job), worker_(job->worker(rank)), rank_(rank) {}

  void Begin() {
    std::promise<void> done;
    worker_.Fetch([&](const Status& status, const Payload& values) {
      EXPECT_TRUE(status.ok()) << status;
      x_ = NumberIn(values);
      done.set_value();
    });
    done.get_future().wait();
  }

  void Step(float gradient) {
    ASSERT_TRUE(job_->Write(rank_, gradient).ok());
    while (worker_.finished() > 0) {
      Apply();
    }
  }

  void Apply() {
    RnaWorker::Round round;
    ASSERT_TRUE(worker_.Read(&round).ok());
    if (round.is_exchange) {
      x_ = ValueOf(round);
      ++exchanges_;
      return;
    }
    const float mean = ValueOf(round) / static_cast<float>(round.contributors);
    x_ += mean;
    moved_ += mean;
    if (round.exchanges) {
      ASSERT_TRUE(worker_.Exchange(Number(x_)).ok());
    }
  }

  // Drains, and applies what remains.
  void Finish() {
    EXPECT_TRUE(job_->Drain(rank_).get().ok());
    while (worker_.remaining() > 0) {
      EXPECT_TRUE(job_->Await(rank_).get().ok());
      Apply();
    }
    std::promise<Status> done;
    worker_.BringLastChange(Number(x_), [&](const Status& status) { done.set_value(status); });
    EXPECT_TRUE(done.get_future().get().ok());
  }

  float x() const { return x_; }
  float moved() const { return moved_; }  // by the group's rounds
  int exchanges() const { return exchanges_; }

 private:
  Job* const job_;
  RnaWorker& worker_;
  const uint32_t rank_;
  float x_ = 0;
  float moved_ = 0;
  int exchanges_ = 0;
};

TEST(RnaGroupsTest, GroupsMoveTheJobsParametersByTheirShares) {
  constexpr uint32_t kSize = 6;
  const Groups groups = {{0, 3}, {1, 2, 4}, {5}};
  Job job(kSize, Rules(2), 1000, kDeadline, groups, 3);
  std::vector<Trainer> trainers;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    trainers.emplace_back(&job, rank);
  }
  for (int phase = 0; phase < 3; ++phase) {
    for (Trainer& trainer : trainers) {
      trainer.Begin();
    }
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        std::mt19937 random(rank);
        for (int step = 0; step < 40; ++step) {
          trainers[rank].Step(static_cast<float>(rank + 1));
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        }
        trainers[rank].Finish();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  float expected = 0;
  for (const std::vector<uint32_t>& members : groups) {
    for (const uint32_t rank : members) {
      EXPECT_EQ(trainers[rank].moved(), trainers[members[0]].moved()) << "one sequence per group";
      EXPECT_GT(trainers[rank].exchanges(), 3);
    }
    expected += trainers[members[0]].moved() * static_cast<float>(members.size()) / kSize;
  }
  for (Trainer& trainer : trainers) {
    trainer.Begin();
    EXPECT_EQ(trainer.x(), trainers[0].x());
  }
  EXPECT_NEAR(trainers[0].x(), expected, 1e-3 * expected);
}

// Servers that keep a change, and neither add it nor answer before they are told to.
class SlowParameters : public SharedParameters {
 public:
  using SharedParameters::SharedParameters;
  void Change(Payload change, uint32_t ranks, uint64_t samples, Callback callback) override {
    go_on_ = [=] { SharedParameters::Change(change, ranks, samples, callback); };
  }
  void GoOn() { go_on_(); }

 private:
  std::function<void()> go_on_;
};

// A group of three, where rank 2 stops in the midst of the push that the others wait for.
class StoppedPush {
 public:
  static constexpr uint32_t kSize = 3;
  static constexpr uint32_t kInitiator = 2;

  explicit StoppedPush(milliseconds deadline) {
    RnaWorker::Rules rules;
    rules.elements = 1;
    rules.exchange.period = 1;
    std::vector<std::string> addresses;
    std::vector<std::shared_ptr<ErrorLatch>> errors;
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      errors.push_back(std::make_shared<ErrorLatch>());
      addresses.push_back("worker " + std::to_string(rank));
      workers_.push_back(std::make_shared<RnaWorker>(
          Endpoint::Options{rank, kSize, deadline}, rules, 0,
          std::make_shared<Allreduce::Rank>(&allreduce_), parameters_, errors[rank]));
      workers_[rank]->Attach(network_.Make(addresses[rank], workers_[rank].get()));
    }
    RnaCoordinator::Rules coordinators = Rules(kSize);
    coordinators.members = {0, 1, 2};
    coordinator_ = std::make_unique<RnaCoordinator>(Endpoint::Options{0, kSize, deadline},
                                                    coordinators, errors[0]);
    coordinator_->Attach(network_.Make("coordinator", coordinator_.get()));
    for (auto& worker : workers_) {
      EXPECT_TRUE(worker->Connect({"coordinator"}, {0}).ok());
    }
    EXPECT_TRUE(coordinator_->Connect(addresses, {0}).ok());
  }

  ~StoppedPush() {
    for (auto& worker : workers_) {
      worker->Cancel(CancelledError("the test is over"));
    }
    coordinator_.reset();
    workers_.clear();
  }

  // Rank 2 starts a round, and all apply it.
  void Lock() {
    for (auto& worker : workers_) {
      worker->Fetch([](const Status& status, const Payload&) { EXPECT_TRUE(status.ok()); });
    }
    ASSERT_TRUE(workers_[kInitiator]->Write(GradientOf(1)).ok());
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(ReadFrom(workers_[rank].get()).exchanges, rank == kInitiator);
    }
  }

  // What it is to do then.
  Status Exchange(float parameters) { return workers_[kInitiator]->Exchange(Number(parameters)); }

  // It begins to push. The next round is not to be read.
  void Begin() {
    Lock();
    ASSERT_TRUE(Exchange(1).ok());
    ASSERT_TRUE(workers_[0]->Write(GradientOf(1)).ok());
    const auto end = steady_clock::now() + kDeadline;
    for (auto& worker : workers_) {
      while (worker->counters().rounds < 2 && steady_clock::now() < end) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      EXPECT_EQ(worker->counters().rounds, 2u);
      EXPECT_EQ(worker->finished(), 0u) << "its parameters are locked";
    }
    // What a process does that is killed or stands still: nothing.
    workers_[kInitiator]->Cancel(CancelledError("the initiator has stopped"));
  }

  // Reads until that fails for another reason than that there is nothing yet.
  Status ErrorOf(uint32_t rank) {
    Status status;
    const auto end = steady_clock::now() + kDeadline;
    do {
      RnaWorker::Round round;
      status = workers_[rank]->Read(&round);
      EXPECT_FALSE(status.ok()) << "rank " << rank << " is to apply something";
      std::this_thread::sleep_for(milliseconds(1));
    } while (status.code() == StatusCode::kFailedPrecondition && steady_clock::now() < end);
    return status;
  }

  // The push goes through after all, which is too late.
  void ExpectThatNobodyAdopts() {
    parameters_->GoOn();
    EXPECT_EQ(network_.Sent(rna::kExchanged), 1u);
    const auto end = steady_clock::now() + kDeadline;
    while (!network_.Idle() && steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(network_.Sent(rna::kAdopt), 0u);
    for (const uint32_t rank : {0u, 1u}) {
      RnaWorker::Round round;
      EXPECT_FALSE(workers_[rank]->Read(&round).ok());
    }
  }

  FakeNetwork& network() { return network_; }

 private:
  FakeNetwork network_;  // outlives the ranks
  Allreduce allreduce_{kSize};
  const std::shared_ptr<SlowParameters> parameters_ = std::make_shared<SlowParameters>(kSize);
  std::vector<std::shared_ptr<RnaWorker>> workers_;
  std::unique_ptr<RnaCoordinator> coordinator_;
};

TEST(RnaGroupsTest, WhoHangsInAPushIsNamedByWhoWaitsForIt) {
  constexpr milliseconds kShort{300};
  constexpr milliseconds kForOthers{2000};  // who might know better
  const auto begin = steady_clock::now();
  StoppedPush push(kShort);
  push.Begin();
  const auto begun = steady_clock::now();
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(std::string(push.ErrorOf(rank).message()),
                HasSubstr("the parameters that rank 2 exchanges for its group after round 0"));
  }
  EXPECT_GE(steady_clock::now() - begin, kShort + kForOthers);
  EXPECT_LE(steady_clock::now() - begun, kShort + kForOthers + milliseconds(10'000));
  push.ExpectThatNobodyAdopts();
}

TEST(RnaGroupsTest, ParametersThatAreNotFiniteAreEverybodysError) {
  StoppedPush push(kDeadline);
  push.Lock();
  EXPECT_FALSE(push.Exchange(std::numeric_limits<float>::quiet_NaN()).ok());
  for (const uint32_t rank : {0u, 1u, 2u}) {
    EXPECT_THAT(std::string(push.ErrorOf(rank).message()),
                HasSubstr("rank 2's parameters are not finite any more: lower the learning rate"));
  }
}

TEST(RnaGroupsTest, WhoIsKilledInAPushIsNamedBeforeTheDeadline) {
  StoppedPush push(kDeadline);
  push.Begin();
  const auto begun = steady_clock::now();
  push.network().Cut("worker 2");
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(std::string(push.ErrorOf(rank).message()),
                HasSubstr("the connection to rank 2 was lost"));
  }
  EXPECT_LT(steady_clock::now() - begun, kDeadline / 4);
  push.ExpectThatNobodyAdopts();
}

}  // namespace
}  // namespace trepak
