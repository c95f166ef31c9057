#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler_helpers.h"

namespace trepak {
namespace {

using Model = ElasticBspScheduler::Model;
using Orders = ElasticBspScheduler::Orders;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ExpectationTest, IsWhatItsKindSays) {
  Expectation last, mean, exponential;
  for (const double seconds : {1.0, 2.0, 6.0}) {
    last.Add(Expectation::Kind::kLast, seconds);
    mean.Add(Expectation::Kind::kMean, seconds);
    exponential.Add(Expectation::Kind::kExponential, seconds);
  }
  EXPECT_DOUBLE_EQ(last.seconds(), 6.0);
  EXPECT_DOUBLE_EQ(mean.seconds(), 3.0);
  EXPECT_DOUBLE_EQ(exponential.seconds(), 1.3 + 0.3 * (6 - 1.3));
  for (int i = 0; i < 10; ++i) {
    mean.Add(Expectation::Kind::kMean, 4.0);
  }
  EXPECT_DOUBLE_EQ(mean.seconds(), 4.0) << "only the latest count";
}

TEST(ElasticBspSchedulerTest, ABarrierIsWhereWaitingIsLeast) {
  ElasticBspScheduler scheduler(Rules(2));
  EXPECT_THAT(StepsOf(scheduler.Begin(0)), ElementsAre(1, 1));
  // The first superstep compiles, the second one is measured: a step of each.
  EXPECT_THAT(scheduler.End(0, 30, 0).grants, IsEmpty());
  const Orders first = scheduler.End(1, 40, 0);
  EXPECT_TRUE(first.barrier);
  EXPECT_THAT(StepsOf(first), ElementsAre(2, 2));
  EXPECT_THAT(scheduler.End(0, 42, 0).grants, IsEmpty());
  // 2 s and 3 s a step: both end one after 6 s.
  EXPECT_THAT(StepsOf(scheduler.End(1, 43, 0)), ElementsAre(5, 4));
  EXPECT_THAT(scheduler.End(0, 45, 0).grants, IsEmpty());
  EXPECT_THAT(scheduler.End(1, 46, 0).grants, IsEmpty());
  EXPECT_THAT(scheduler.End(0, 47, 0).grants, IsEmpty());
  EXPECT_THAT(scheduler.End(0, 49, 0).grants, IsEmpty());
  EXPECT_TRUE(scheduler.is_waiting(0));
  EXPECT_FALSE(scheduler.is_waiting(1));
  EXPECT_TRUE(scheduler.End(1, 49.5, 0).barrier);
  const ElasticBspScheduler::Counters& counters = scheduler.counters();
  EXPECT_EQ(counters.barriers, 3u);
  EXPECT_EQ(counters.steps, 9u);
  EXPECT_DOUBLE_EQ(counters.waiting, 10 + 1 + 0.5);
  EXPECT_DOUBLE_EQ(counters.longest_waits, 10 + 1 + 0.5);
  EXPECT_EQ(counters.predictions, 5u);
  EXPECT_NEAR(counters.error, 0.5 / 3, 1e-9);
}

TEST(ElasticBspSchedulerTest, WhoEndsStepsIsNotAwaitedTooLong) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  scheduler.End(0, 1, 0);
  scheduler.End(1, 1, 0);
  scheduler.End(0, 2, 0);  // 1 s a step
  EXPECT_THAT(StepsOf(scheduler.End(1, 5, 0)), ElementsAre(6, 3)) << "4 steps, and one of 4 s";
  scheduler.End(1, 9, 0);
  EXPECT_THAT(scheduler.Waiting(), testing::SizeIs(1));
  EXPECT_EQ(scheduler.Waiting()[0].worker, 1u);
  EXPECT_EQ(scheduler.Waiting()[0].steps, 3u);
  for (const double now : {13.0, 21.0, 29.0}) {  // slower than foreseen
    scheduler.End(0, now, 0);
    EXPECT_THAT(scheduler.Awaited(now + 9, 10), IsEmpty());
  }
  EXPECT_THAT(scheduler.Awaited(39, 10), ElementsAre(0)) << "now it has ended none for long";
}

TEST(ElasticBspSchedulerTest, OneIterationAheadIsBsp) {
  ElasticBspScheduler::Rules rules = Rules(2);
  rules.lookahead = 1;
  ElasticBspScheduler scheduler(rules);
  scheduler.Begin(0);
  double now = 0;
  for (uint64_t step = 1; step < 10; ++step) {
    EXPECT_THAT(scheduler.End(0, now += 1, 0).grants, IsEmpty());
    EXPECT_THAT(StepsOf(scheduler.End(1, now += 4, 0)), ElementsAre(step + 1, step + 1));
  }
}

TEST(ElasticBspSchedulerTest, WhoPausesIsNotWaitedFor) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  EXPECT_THAT(scheduler.End(0, 1, 0).grants, IsEmpty());
  const Orders orders = scheduler.Pause(1, 2);
  EXPECT_TRUE(orders.barrier);
  ASSERT_EQ(orders.grants.size(), 1u);
  EXPECT_EQ(orders.grants[0].worker, 0u);
  EXPECT_THAT(scheduler.Pause(0, 3).grants, IsEmpty());
  EXPECT_EQ(scheduler.Begin(4).grants.size(), 2u);
}

TEST(ElasticBspSchedulerTest, WhatWasForeseenCountsAtBarriersThatAreComeTo) {
  ElasticBspScheduler::Rules rules = Rules(2);
  rules.lookahead = 2;
  ElasticBspScheduler scheduler(rules);
  scheduler.Begin(0);
  scheduler.End(0, 1, 0);
  scheduler.End(1, 1, 0);
  scheduler.End(0, 3, 0);
  EXPECT_TRUE(scheduler.End(1, 4.5, 0).barrier);  // 2 s and 3.5 s a step: it waits 0.5 s
  scheduler.Pause(0, 5);
  scheduler.Pause(1, 5);
  scheduler.Begin(5);
  EXPECT_EQ(scheduler.counters().predicted_waits, 0.0);
  scheduler.End(0, 7, 0);
  scheduler.End(1, 8.5, 0);
  EXPECT_TRUE(scheduler.End(0, 9, 0).barrier);
  EXPECT_DOUBLE_EQ(scheduler.counters().predicted_waits, 0.5);
}

TEST(ElasticBspSchedulerTest, GrantsEndWithAPause) {
  for (const Model model : {Model::kElasticBsp, Model::kSsp, Model::kAsp}) {
    ElasticBspScheduler scheduler(Rules(2, model));
    scheduler.Begin(0);
    scheduler.End(0, 1, 0);
    scheduler.Pause(0, 2);
    scheduler.Pause(1, 3);
    EXPECT_EQ(scheduler.Begin(4).grants.size(), 2u) << "all need new ones";
  }
}

TEST(ElasticBspSchedulerTest, SspBoundsTheLead) {
  ElasticBspScheduler::Rules rules = Rules(2, Model::kSsp);
  rules.staleness = 2;
  ElasticBspScheduler scheduler(rules);
  EXPECT_THAT(StepsOf(scheduler.Begin(0)), ElementsAre(3, 3));
  for (int step = 1; step < 3; ++step) {
    EXPECT_THAT(scheduler.End(0, step, 0).grants, IsEmpty());
    EXPECT_FALSE(scheduler.is_waiting(0));
  }
  scheduler.End(0, 3, 0);
  EXPECT_TRUE(scheduler.is_waiting(0)) << "3 steps ahead";
  EXPECT_THAT(StepsOf(scheduler.End(1, 7, 0)), ElementsAre(4, 4));
  EXPECT_FALSE(scheduler.is_waiting(0));
  EXPECT_DOUBLE_EQ(scheduler.counters().waiting, 4.0);
  EXPECT_THAT(scheduler.Pause(1, 8).grants, testing::SizeIs(1)) << "who has paused holds nobody up";
}

TEST(ElasticBspSchedulerTest, WhatOneWaitsWithSspIsNoPartOfItsStep) {
  ElasticBspScheduler scheduler(Rules(3, Model::kSsp));
  scheduler.Begin(0);
  for (int step = 1; step <= 4; ++step) {
    scheduler.End(0, 0.1 * step, 0);
    scheduler.End(1, 0.5 * step, 0);
  }
  EXPECT_TRUE(scheduler.is_waiting(0) && scheduler.is_waiting(1)) << "for the third, slow one";
  scheduler.End(2, 10, 0);
  EXPECT_FALSE(scheduler.is_waiting(0) || scheduler.is_waiting(1));
  scheduler.End(0, 10.1, 0);
  EXPECT_TRUE(scheduler.is_waiting(0));
  EXPECT_THAT(scheduler.Tick(10.2).taken_out, IsEmpty()) << "0.2 s into a step of 0.5 s";
  scheduler.End(1, 10.5, 0);
  for (const ElasticBspScheduler::Step& step : scheduler.recorded()) {
    EXPECT_NEAR(step.computing, step.worker == 0 ? 0.1 : 0.5, 1e-9);
  }
}

TEST(ElasticBspSchedulerTest, AStepComputesCommunicatesAndIsHeldUp) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  for (const double end : {1.0, 3.0}) {
    scheduler.End(0, end, 0.3, 0.2);
    scheduler.End(1, end, 0.1);
  }
  ASSERT_EQ(scheduler.recorded().size(), 2u) << "the first ones compile";
  const ElasticBspScheduler::Step& first = scheduler.recorded()[0];
  EXPECT_NEAR(first.computing, 1.5, 1e-9);
  EXPECT_NEAR(first.communication, 0.3, 1e-9);
  EXPECT_NEAR(scheduler.patience(0), 10 * 1.8, 1e-9) << "without what it was held up for";
  EXPECT_NEAR(scheduler.recorded()[1].computing, 1.9, 1e-9);
  EXPECT_NEAR(scheduler.counters().waiting, 0.2, 1e-9);
  scheduler.End(0, 4, 5, 5);
  EXPECT_NEAR(scheduler.recorded()[2].computing, 0, 1e-9) << "no part is longer than the step";
}

TEST(ElasticBspSchedulerTest, AspNeverWaits) {
  ElasticBspScheduler scheduler(Rules(2, Model::kAsp));
  EXPECT_THAT(StepsOf(scheduler.Begin(0)),
              ElementsAre(ElasticBspScheduler::kForever, ElasticBspScheduler::kForever));
  for (int step = 1; step < 100; ++step) {
    EXPECT_THAT(scheduler.End(0, step, 0).grants, IsEmpty());
    EXPECT_FALSE(scheduler.is_waiting(0));
  }
}

}  // namespace
}  // namespace trepak
