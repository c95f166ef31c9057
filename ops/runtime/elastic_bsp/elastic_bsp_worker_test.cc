#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "ops/runtime/elastic_bsp/elastic_bsp_fake_job.h"

namespace trepak {
namespace {

using Model = ElasticBspScheduler::Model;
using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(ElasticBspWorkerTest, AtABarrierAllGetTheSumOfWhatAllHaveChanged) {
  Job job(2, RulesOf(Model::kElasticBsp, 1));
  float value = 0;
  for (int step = 0; step < 5; ++step) {
    std::future<Outcome> first = job.Step(0, value + 2);
    EXPECT_FALSE(IsReady(first, milliseconds(20)));
    std::future<Outcome> second = job.Step(1, value + 4);
    ASSERT_TRUE(IsReady(first) && IsReady(second));
    value += 3;  // each counts a half
    EXPECT_EQ(first.get().value, value);
    EXPECT_EQ(second.get().value, value);
  }
  EXPECT_EQ(job.worker(0).counters().barriers, 5u);
  EXPECT_EQ(job.worker(0).counters().met, 10u);
  EXPECT_EQ(job.worker(0).TakeSamples(), 10u);
  EXPECT_EQ(job.worker(0).TakeSamples(), 0u);
}

milliseconds Steady(uint32_t rank, uint64_t) { return milliseconds(2 + 2 * rank); }

// Every rank at a pace of its own, until it has taken so many steps; then all drain.
void Train(Job* job, uint64_t steps, const std::function<void(uint32_t, uint64_t, float)>& seen,
           const std::function<milliseconds(uint32_t, uint64_t)>& pace = Steady) {
  std::vector<float> begins;
  for (uint32_t rank = 0; rank < job->size(); ++rank) {
    begins.push_back(job->Fetch(rank).value);
  }
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < job->size(); ++rank) {
    threads.emplace_back([job, rank, steps, &begins, &seen, &pace] {
      float value = begins[rank];
      for (uint64_t step = 0; step < steps; ++step) {
        std::this_thread::sleep_for(pace(rank, step));
        std::future<Outcome> outcome = job->Step(rank, value + 1);
        ASSERT_TRUE(IsReady(outcome));
        const Outcome result = outcome.get();
        ASSERT_TRUE(result.status.ok()) << result.status;
        value = result.value;
        seen(rank, step + 1, value);
      }
      std::future<Status> drained = job->Drain(rank, value);
      ASSERT_TRUE(IsReady(drained));
      const Status status = drained.get();
      ASSERT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ElasticBspWorkerTest, NothingIsLostAndBarriersCanFollowOneAnother) {
  for (const Model model : {Model::kElasticBsp, Model::kSsp, Model::kAsp}) {
    Job job(3, RulesOf(model, 4));
    for (uint64_t epoch = 1; epoch < 4; ++epoch) {
      Train(&job, 20, [](uint32_t, uint64_t, float) {});
      for (uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_NEAR(job.Fetch(rank).value, static_cast<float>(20 * epoch), 1e-3);
        EXPECT_EQ(job.worker(rank).TakeSamples(), 60u);
      }
    }
    EXPECT_EQ(job.coordinator().counters().steps, 180u);
  }
}

TEST(ElasticBspWorkerTest, AllLeaveABarrierWithTheSameAfterNoMoreStepsThanTheLookahead) {
  Job job(3, RulesOf(Model::kElasticBsp, 6));
  std::mutex mutex;
  std::map<uint64_t, std::set<float>> at_barriers;
  uint64_t barriers[3] = {0, 0, 0};
  uint64_t since[3] = {0, 0, 0};  // steps
  uint64_t most = 0;
  Train(&job, 60, [&](uint32_t rank, uint64_t, float value) {
    std::lock_guard<std::mutex> lock(mutex);
    most = std::max(most, ++since[rank]);
    if (const uint64_t now = job.worker(rank).counters().barriers; now != barriers[rank]) {
      EXPECT_EQ(now, barriers[rank] + 1);
      barriers[rank] = now;
      since[rank] = 0;
      at_barriers[now].insert(value);
    }
  });
  EXPECT_GT(most, 1u);
  EXPECT_LE(most, 6u);
  EXPECT_GT(at_barriers.size(), 10u);
  for (const auto& [barrier, values] : at_barriers) {
    EXPECT_EQ(values.size(), 1u) << "barrier " << barrier;
  }
}

TEST(ElasticBspWorkerTest, SspNeverLetsARankGetFurtherAhead) {
  Job job(2, RulesOf(Model::kSsp));
  std::atomic<uint64_t> taken[2] = {0, 0};
  std::atomic<uint64_t> most{0};
  Train(&job, 30, [&](uint32_t rank, uint64_t step, float) {
    // A rank may go on: it has at most taken one step more than the slowest.
    const uint64_t other = taken[1 - rank];
    taken[rank] = step;
    most = std::max<uint64_t>(most, step > other ? step - other : 0);
  });
  EXPECT_LE(most, 2u) << "one, and one that the other was just ending";
  EXPECT_GE(most, 1u);
}

// The steps of one worker that the scheduler has measured.
std::vector<ElasticBspScheduler::Step> MeasuredOf(const Job& job, uint32_t worker) {
  std::vector<ElasticBspScheduler::Step> steps;
  for (const ElasticBspScheduler::Step& step : job.coordinator().recorded()) {
    if (step.worker == worker) {
      steps.push_back(step);
    }
  }
  return steps;
}

TEST(ElasticBspWorkerTest, WhatAStepExchangesAndIsHeldUpForIsNoPartOfItsComputing) {
  Job job(2, RulesOf(Model::kElasticBsp, 1));
  std::future<Outcome> first = job.Step(0, 1);
  std::future<Outcome> other = job.Step(1, 1);
  ASSERT_TRUE(IsReady(first) && IsReady(other));  // the steps that compile

  job.seen_by(0).HoldChanges();
  job.seen_by(1).HoldFetches();
  first = job.Step(0, 1);
  other = job.Step(1, 1);
  std::this_thread::sleep_for(milliseconds(600));  // one's change is on its way
  job.seen_by(0).Release();
  ASSERT_TRUE(IsReady(first));
  first = job.Step(0, 1);
  std::this_thread::sleep_for(milliseconds(600));  // what the other one fetches is on its way
  job.seen_by(1).Release();
  ASSERT_TRUE(IsReady(other));
  other = job.Step(1, 1);
  ASSERT_TRUE(IsReady(first) && IsReady(other));

  const auto ours = MeasuredOf(job, 0), theirs = MeasuredOf(job, 1);
  ASSERT_TRUE(ours.size() == 2 && theirs.size() == 2);
  EXPECT_GE(ours[0].communication, 0.3);
  EXPECT_LT(ours[1].communication, 0.3) << "it was held up";
  EXPECT_GE(theirs[1].communication, 0.3);
  for (const ElasticBspScheduler::Step& step : job.coordinator().recorded()) {
    EXPECT_LT(step.computing, 0.3) << "of worker " << step.worker;
  }
  EXPECT_GE(job.coordinator().counters().waiting, 0.9);
  EXPECT_GE(job.worker(0).counters().exchange_nanoseconds, 300'000'000u);
  EXPECT_GE(job.worker(1).counters().exchange_nanoseconds, 300'000'000u);
}

TEST(ElasticBspWorkerTest, AStepThatIsNotFiniteIsLeftOut) {
  Job job(1, RulesOf(Model::kAsp));
  ASSERT_EQ(job.Step(0, 2).get().value, 2);
  const Outcome outcome = job.Step(0, std::numeric_limits<float>::quiet_NaN()).get();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.value, 2);
  EXPECT_EQ(job.Step(0, 3, false).get().value, 2) << "its gradients were not";
  EXPECT_EQ(job.worker(0).counters().not_finite, 2u);
}

TEST(ElasticBspWorkerTest, WeightsThatWereSetCountAsAChange) {
  Job job(2, RulesOf(Model::kElasticBsp));
  std::future<Status> first = job.Drain(0, 7);
  std::future<Status> second = job.Drain(1, 7);
  ASSERT_TRUE(IsReady(first) && IsReady(second));
  EXPECT_TRUE(first.get().ok() && second.get().ok());
  EXPECT_EQ(job.Fetch(0).value, 7.0f);
}

TEST(ElasticBspWorkerTest, WeightsThatAreNotFiniteAreNotAdded) {
  Job job(2, RulesOf(Model::kElasticBsp));
  std::future<Status> other = job.Drain(1, 0);
  std::future<Status> spoilt = job.Drain(0, std::numeric_limits<float>::infinity());
  ASSERT_TRUE(IsReady(other) && IsReady(spoilt));
  EXPECT_THAT(std::string(spoilt.get().message()), HasSubstr("rank 0's parameters are not finite"));
  EXPECT_THAT(std::string(other.get().message()), HasSubstr("rank 0's parameters are not finite"));
}

TEST(ElasticBspWorkerTest, WhoeverStallsAllGoOnAndNothingIsLost) {
  for (const Model model : {Model::kElasticBsp, Model::kSsp}) {
    ElasticBspScheduler::Rules rules = RulesOf(model, 6);
    rules.patience_seconds = 0.03;
    rules.patience_factor = 1;
    Job job(3, rules);
    for (uint64_t epoch = 1; epoch < 4; ++epoch) {
      Train(
          &job, 60, [](uint32_t, uint64_t, float) {},
          [epoch](uint32_t rank, uint64_t step) {
            std::mt19937 random(static_cast<uint32_t>(1000 * epoch + 100 * rank + step));
            return milliseconds(1 + rank + (random() % 20 == 0 ? 60 + random() % 100 : 0));
          });
      for (uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_NEAR(job.Fetch(rank).value, static_cast<float>(60 * epoch), 1e-3);
      }
    }
    EXPECT_GT(job.coordinator().counters().taken_out, 3u);
    EXPECT_EQ(job.coordinator().counters().steps, 540u);
  }
}

}  // namespace
}  // namespace trepak
