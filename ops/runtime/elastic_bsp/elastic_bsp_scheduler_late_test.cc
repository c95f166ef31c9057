// Workers that others do not wait for any longer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler_helpers.h"

namespace trepak {
namespace {

using Model = ElasticBspScheduler::Model;
using Orders = ElasticBspScheduler::Orders;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ElasticBspSchedulerTest, WhoDoesNotAnswerIsTakenOutAndComesBack) {
  ElasticBspScheduler scheduler(Rules(3));
  scheduler.Begin(0);
  double now = 0;
  for (int step = 0; step < 4; ++step) {  // alike: a barrier after each step
    now += 1;
    for (uint32_t worker = 0; worker < 3; ++worker) {
      scheduler.End(worker, now, 0);
    }
  }
  scheduler.End(0, now + 1, 0);
  EXPECT_THAT(scheduler.Tick(now + 9).taken_out, IsEmpty()) << "nobody is patient for too short";
  scheduler.End(1, now + 9, 0);
  const Orders orders = scheduler.Tick(now + 20);
  EXPECT_THAT(orders.taken_out, ElementsAre(2));
  EXPECT_TRUE(orders.barrier);
  ASSERT_EQ(orders.grants.size(), 2u) << "the others go on";
  now += 20;
  EXPECT_FALSE(scheduler.End(0, now + 1, 0).barrier);
  const Orders back = scheduler.End(2, now + 1.5, 0);
  EXPECT_THAT(back.back, ElementsAre(2));
  EXPECT_FALSE(back.barrier) << "it waits for the next barrier, as the others do";
  Orders next;
  for (int step = 0; step < 30 && !next.barrier; ++step) {
    next = scheduler.End(1, now + 2 + step, 0);
    if (!next.barrier && !scheduler.is_waiting(0)) {
      next = scheduler.End(0, now + 2.5 + step, 0);
    }
  }
  ASSERT_TRUE(next.barrier);
  EXPECT_EQ(next.grants.size(), 3u);
}

TEST(ElasticBspSchedulerTest, WhoIsTakenOutUsesItsGrantBeforeItIsBack) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  scheduler.End(0, 1, 0);
  scheduler.End(1, 1, 0);
  scheduler.End(0, 3, 0);  // 2 s a step
  EXPECT_THAT(StepsOf(scheduler.End(1, 4, 0)), ElementsAre(5, 4)) << "3 steps, and 2 of 3 s";
  double now = 4;
  scheduler.End(0, now + 2, 0);
  scheduler.End(1, now + 3, 0);
  scheduler.End(1, now + 6, 0);
  const Orders alone = scheduler.Tick(now + 40);
  EXPECT_THAT(alone.taken_out, ElementsAre(0));
  EXPECT_TRUE(alone.barrier);
  now += 40;
  const Orders back = scheduler.End(0, now, 0);
  EXPECT_THAT(back.back, ElementsAre(0));
  EXPECT_FALSE(scheduler.is_waiting(0)) << "it goes on to its third step";
  EXPECT_TRUE(scheduler.is_out(0));
  while (!scheduler.is_waiting(1)) {
    const Orders orders = scheduler.End(1, now += 3, 0);
    if (orders.barrier) {
      break;
    }
  }
  EXPECT_THAT(scheduler.End(0, now += 1, 0).back, IsEmpty()) << "said once";
  EXPECT_FALSE(scheduler.is_out(0));
  EXPECT_TRUE(scheduler.is_waiting(0));
}

// Worker 1 takes as long as the other one, a second, and then as long as a minute or so, for good.
void ExpectThatWhoHasBecomeSlowIsPlannedWithThat(const ElasticBspScheduler::Rules& rules,
                                                 bool pauses) {
  ElasticBspScheduler scheduler(rules);
  scheduler.Begin(0);
  double now = 0;
  for (int step = 0; step < 20; ++step) {
    scheduler.End(0, now += 1, 0);
    scheduler.End(1, now, 0);
  }
  int alone = 0;  // steps of the fast one while the slow one is out
  for (int step = 0; step < 100; ++step) {
    for (int second = 0; second < 55 + 5 * (step % 4); ++second) {
      now += 1;
      scheduler.Tick(now);
      if (!scheduler.is_waiting(0)) {
        alone += scheduler.is_out(1) ? 1 : 0;
        scheduler.End(0, now, 0);
      }
    }
    scheduler.End(1, now, 0);
    if (pauses && step == 0) {  // the step after it is not measured
      scheduler.Pause(0, now);
      scheduler.Pause(1, now);
      scheduler.Begin(now);
    }
  }
  EXPECT_EQ(scheduler.counters().taken_out, pauses ? 3u : 2u);
  EXPECT_LT(alone, 200);
  EXPECT_FALSE(scheduler.is_out(1));
}

TEST(ElasticBspSchedulerTest, WhoHasBecomeSlowIsPlannedWithThat) {
  using Kind = Expectation::Kind;
  for (const Kind prediction : {Kind::kLast, Kind::kMean, Kind::kExponential}) {
    for (const uint32_t lookahead : {1u, 15u}) {
      ElasticBspScheduler::Rules rules = Rules(2);
      rules.prediction = prediction;
      rules.lookahead = lookahead;
      ExpectThatWhoHasBecomeSlowIsPlannedWithThat(rules, false);
      ExpectThatWhoHasBecomeSlowIsPlannedWithThat(rules, true);
    }
  }
}

TEST(ElasticBspSchedulerTest, WhoHasBecomeSlowIsPlannedWithThatAlsoWithinItsGrant) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  scheduler.End(0, 2, 0);
  scheduler.End(1, 2, 0);
  scheduler.End(1, 3, 0);
  EXPECT_THAT(StepsOf(scheduler.End(0, 4, 0)), ElementsAre(3, 4)) << "2 s a step, and 1 s";
  scheduler.End(0, 6, 0);
  EXPECT_THAT(scheduler.Tick(15).taken_out, ElementsAre(1));
  EXPECT_THAT(scheduler.End(1, 64, 0).back, ElementsAre(1));
  EXPECT_DOUBLE_EQ(scheduler.patience(1), 10) << "it may have been a standstill";
  scheduler.End(1, 124, 0);
  EXPECT_DOUBLE_EQ(scheduler.patience(1), 600);
}

TEST(ElasticBspSchedulerTest, AStandstillIsNotWhatStepsTakeNorAreTwoWithAStepBetween) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  double now = 0;
  for (int step = 0; step < 4; ++step) {
    scheduler.End(0, now += 1, 0);
    scheduler.End(1, now, 0);
  }
  const double before = scheduler.patience(1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    scheduler.End(0, now += 1, 0);
    EXPECT_THAT(scheduler.Tick(now += 30).taken_out, ElementsAre(1));
    scheduler.End(1, now += 30, 0);
    EXPECT_DOUBLE_EQ(scheduler.patience(1), before);
    scheduler.Pause(0, now);
    scheduler.Pause(1, now);
    scheduler.Begin(now);
    scheduler.End(0, now += 1, 0);
    scheduler.End(1, now, 0);  // which is not measured
  }
}

TEST(ElasticBspSchedulerTest, PatienceBeginsWithTheFirstStepAfterAPause) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  double now = 1;
  for (int step = 0; step < 3; ++step, ++now) {
    scheduler.End(0, now, 0);
    scheduler.End(1, now, 0);
  }
  scheduler.Pause(0, now);
  scheduler.Pause(1, now);
  scheduler.Begin(now);
  now += 60;  // a checkpoint
  scheduler.End(0, now, 0);
  EXPECT_THAT(scheduler.Tick(now + 4).taken_out, IsEmpty());
  EXPECT_THAT(scheduler.Tick(now + 12).taken_out, ElementsAre(1));
}

TEST(ElasticBspSchedulerTest, SspTakesWhoComesBackAsOneThatHasKeptUp) {
  ElasticBspScheduler::Rules rules = Rules(2, Model::kSsp);
  rules.staleness = 2;
  ElasticBspScheduler scheduler(rules);
  scheduler.Begin(0);
  double now = 0;
  for (int step = 0; step < 3; ++step) {
    scheduler.End(0, now += 0.5, 0);
    scheduler.End(1, now += 0.5, 0);
  }
  for (int step = 0; step < 3; ++step) {
    scheduler.End(0, now += 1, 0);
  }
  EXPECT_TRUE(scheduler.is_waiting(0));
  EXPECT_THAT(scheduler.Tick(now += 20).taken_out, ElementsAre(1));
  for (int step = 0; step < 50; ++step) {
    EXPECT_FALSE(scheduler.is_waiting(0));
    scheduler.End(0, now += 1, 0);
  }
  EXPECT_THAT(scheduler.End(1, now += 1, 0).back, ElementsAre(1));
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(scheduler.is_waiting(1));
    scheduler.End(1, now += 1, 0);
  }
  EXPECT_TRUE(scheduler.is_waiting(1)) << "3 steps ahead of the other one";
  for (int step = 0; step < 6; ++step) {
    EXPECT_FALSE(scheduler.is_waiting(0));
    scheduler.End(0, now += 1, 0);
  }
  EXPECT_TRUE(scheduler.is_waiting(0)) << "3 steps ahead of it";
}

}  // namespace
}  // namespace trepak
