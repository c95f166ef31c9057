#include "horovod_ext/runtime/elastic_bsp_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace trepak {
namespace {

using Model = ElasticBspScheduler::Model;
using Orders = ElasticBspScheduler::Orders;
using testing::ElementsAre;
using testing::IsEmpty;

ElasticBspScheduler::Rules Rules(uint32_t workers, Model model = Model::kElasticBsp) {
  ElasticBspScheduler::Rules rules;
  rules.workers = workers;
  rules.model = model;
  return rules;
}

std::vector<uint64_t> StepsOf(const Orders& orders) {
  std::vector<uint64_t> steps;
  for (const ElasticBspScheduler::Grant& grant : orders.grants) {
    steps.push_back(grant.steps);
  }
  return steps;
}

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

TEST(ElasticBspSchedulerTest, AspNeverWaits) {
  ElasticBspScheduler scheduler(Rules(2, Model::kAsp));
  EXPECT_THAT(StepsOf(scheduler.Begin(0)),
              ElementsAre(ElasticBspScheduler::kForever, ElasticBspScheduler::kForever));
  for (int step = 1; step < 100; ++step) {
    EXPECT_THAT(scheduler.End(0, step, 0).grants, IsEmpty());
    EXPECT_FALSE(scheduler.is_waiting(0));
  }
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

TEST(ElasticBspSchedulerTest, WhoHasBecomeSlowIsPlannedWithThat) {
  for (const uint32_t lookahead : {1u, 15u}) {
    ElasticBspScheduler::Rules rules = Rules(2);
    rules.lookahead = lookahead;
    ElasticBspScheduler scheduler(rules);
    scheduler.Begin(0);
    double now = 0;
    for (int step = 0; step < 20; ++step) {
      scheduler.End(0, now += 1, 0);
      scheduler.End(1, now, 0);
    }
    int alone = 0;  // steps of the fast one while the slow one is out
    for (int step = 0; step < 100; ++step) {
      for (int second = 0; second < 60; ++second) {
        now += 1;
        scheduler.Tick(now);
        if (!scheduler.is_waiting(0)) {
          alone += scheduler.is_out(1) ? 1 : 0;
          scheduler.End(0, now, 0);
        }
      }
      scheduler.End(1, now, 0);
    }
    EXPECT_GE(scheduler.counters().taken_out, 2u) << "at first";
    EXPECT_LE(scheduler.counters().taken_out, 4u);
    EXPECT_LT(alone, 240);
    EXPECT_FALSE(scheduler.is_out(1));
  }
}

TEST(ElasticBspSchedulerTest, AStandstillIsNotWhatStepsTake) {
  ElasticBspScheduler scheduler(Rules(2));
  scheduler.Begin(0);
  double now = 0;
  for (int step = 0; step < 4; ++step) {
    scheduler.End(0, now += 1, 0);
    scheduler.End(1, now, 0);
  }
  const double before = scheduler.patience(1);
  scheduler.End(0, now += 1, 0);
  EXPECT_THAT(scheduler.Tick(now += 30).taken_out, ElementsAre(1));
  scheduler.End(1, now += 30, 0);
  EXPECT_DOUBLE_EQ(scheduler.patience(1), before);
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
