#include "horovod_ext/runtime/rna_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "horovod_ext/runtime/rna_fake_job.h"

namespace trepak {
namespace {

Payload Number(float value) {
  Payload payload = Payload::Allocate(sizeof(float));
  *static_cast<float*>(payload.mutable_data()) = value;
  return payload;
}

float NumberIn(const Payload& payload) { return *static_cast<const float*>(payload.data()); }

TEST(RnaExchangeTest, ARoundOfThePeriodLocksUntilItsOutcomeArrives) {
  RnaExchange exchange({2, 0.25}, ElementType::kFloat32, sizeof(float));
  exchange.Begin(Number(10), 1000);
  exchange.Apply(0, 32);
  EXPECT_FALSE(exchange.locked());
  exchange.Apply(1, 16);
  EXPECT_EQ(exchange.locked(), 1u);
  EXPECT_EQ(NumberIn(exchange.Change(Number(14))), 1.0f) << "a quarter of the change";
  EXPECT_EQ(exchange.samples(), 48u);
  EXPECT_EQ(exchange.Others(1148), 100u);
  EXPECT_FALSE(exchange.has_arrived());
  exchange.Arrive(3, {Number(99), 0});  // a later one's, of ranks that are further
  EXPECT_FALSE(exchange.has_arrived());
  exchange.Arrive(1, {Number(20), 100});
  ASSERT_TRUE(exchange.has_arrived());
  EXPECT_EQ(NumberIn(exchange.Adopt().values), 20.0f);
  EXPECT_FALSE(exchange.locked());
  EXPECT_EQ(exchange.samples(), 0u);
  EXPECT_EQ(exchange.Others(1148), 0u);
  EXPECT_EQ(NumberIn(exchange.Change(Number(24))), 1.0f) << "since what was adopted";
}

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

TEST(RnaExchangeTest, GroupsMoveTheJobsParametersByTheirShares) {
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

}  // namespace
}  // namespace trepak
