#include "ops/runtime/fela/fela_scheduler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trepak {
namespace {

using Orders = FelaScheduler::Orders;

// Section III-B's example: 128 samples; 16, 32 and 64 make full use of a worker.
FelaRules Figure3(uint32_t workers) {
  FelaRules rules;
  rules.batches.assign(workers, 128 / workers);
  rules.threshold = 16;
  rules.weights = {1, 2, 4};
  rules.hierarchical = false;
  return rules;
}

// Workers that report when the test says so; what each has in hand.
class Workers {
 public:
  explicit Workers(const FelaRules& rules) : scheduler_(rules) {
    for (uint32_t worker = 0; worker < rules.batches.size(); ++worker) {
      Carry([&](Orders* orders) {
        return scheduler_.Begin(worker, 0, rules.batches[worker], orders);
      });
    }
  }

  std::optional<uint32_t> Ask(uint32_t worker) {
    Carry([&](Orders* orders) { return scheduler_.Request(worker, 0, orders); });
    return InHand(worker);
  }
  // Of the token that it has; returns the next one.
  std::optional<uint32_t> Report(uint32_t worker) {
    const uint32_t token = hand_.at(worker).token;
    hand_.erase(worker);
    Carry([&](Orders* orders) { return scheduler_.Report(worker, 0, token, orders); });
    return InHand(worker);
  }
  std::optional<uint32_t> InHand(uint32_t worker) const {
    const auto found = hand_.find(worker);
    return found == hand_.end() ? std::nullopt : std::optional<uint32_t>(found->second.token);
  }
  const FelaScheduler::Assignment& Token(uint32_t worker) const { return hand_.at(worker); }
  FelaScheduler& scheduler() { return scheduler_; }
  const std::vector<uint32_t>& trained() const { return trained_; }

 private:
  template <typename Say>
  void Carry(const Say& say) {
    Orders orders;
    const Status status = say(&orders);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const FelaScheduler::Assignment& one : orders.assignments) {
      ASSERT_TRUE(hand_.emplace(one.worker, one).second);
    }
    trained_.insert(trained_.end(), orders.trained.begin(), orders.trained.end());
  }

  FelaScheduler scheduler_;
  std::map<uint32_t, FelaScheduler::Assignment> hand_;
  std::vector<uint32_t> trained_;
};

TEST(FelaPlanTest, TokensAreEightFourAndTwo) {
  const FelaPlan plan(Figure3(4));
  EXPECT_EQ(plan.Tokens(1), 8U);
  EXPECT_EQ(plan.Tokens(2), 4U);
  EXPECT_EQ(plan.Tokens(3), 2U);
  EXPECT_EQ(plan.FirstOfStage(2), 8U);
  EXPECT_EQ(plan.FirstOfStage(3), 12U);
}

TEST(FelaPlanTest, EachWorkerHasAToken) {
  FelaRules rules = Figure3(8);
  rules.threshold = 64;
  EXPECT_EQ(FelaPlan(rules).Tokens(1), 8U);
}

TEST(FelaPlanTest, NoSampleIsLeftOut) {
  FelaRules rules = Figure3(3);
  rules.batches = {10, 7, 1};
  rules.threshold = 4;
  rules.weights = {1, 2, 2, 4};
  const FelaPlan plan(rules);
  uint32_t samples = 0;
  uint32_t token = 0;
  for (uint32_t worker = 0; worker < 3; ++worker) {
    for (uint32_t i = 0; i < plan.FirstTokens(worker, rules.batches[worker]); ++i) {
      const FelaPlan::Part part = plan.PartOf(worker, rules.batches[worker], i);
      EXPECT_EQ(part.token, token++);
      EXPECT_EQ(part.first, samples);
      EXPECT_EQ(plan.OwnerOf(part.token), worker);
      EXPECT_GE(part.samples, 1U);
      EXPECT_LE(part.samples, 4U);
      samples += part.samples;
    }
  }
  EXPECT_EQ(samples, 18U);
  EXPECT_EQ(token, plan.Tokens(1));
}

TEST(FelaPlanTest, WrongRulesAreNamed) {
  FelaRules rules = Figure3(2);
  rules.weights = {1, 2, 3};
  EXPECT_NE(FelaPlan::Check(rules).message().find("weight 3 is 3"), std::string::npos);
  rules = Figure3(2);
  rules.subsets = {{}, {0, 2}, {}};
  EXPECT_NE(FelaPlan::Check(rules).message().find("worker 2"), std::string::npos);
  rules = Figure3(2);
  rules.threshold = 0;
  EXPECT_FALSE(FelaPlan::Check(rules).ok());
  rules = Figure3(2);
  rules.batches = {0, 0};
  EXPECT_FALSE(FelaPlan::Check(rules).ok());
}

// "Token 8 is generated and added to Token Bucket after Token 0 and Token 1 have been completed by
// workers. Token 12 is generated and added after Token 8 and Token 10 have been completed."
TEST(FelaSchedulerTest, TheTraceOfFigure3) {
  Workers workers(Figure3(4));
  for (uint32_t worker = 0; worker < 4; ++worker) {
    EXPECT_EQ(workers.Ask(worker), worker);
  }
  EXPECT_EQ(workers.Report(0), 4U);  // one T-1 token makes no T-2 token
  EXPECT_EQ(workers.Report(1), 8U);  // two do, of 0 and 1
  EXPECT_EQ(workers.Token(1).inputs[0].token, 0U);
  EXPECT_EQ(workers.Token(1).inputs[1].token, 1U);
  EXPECT_EQ(workers.Token(1).samples, 32U);
  EXPECT_EQ(workers.Report(2), 5U);
  EXPECT_EQ(workers.Report(3), 9U);
  EXPECT_EQ(workers.Report(0), 6U);
  EXPECT_EQ(workers.Report(2), 10U);  // of 4 and 5
  EXPECT_EQ(workers.Report(1), 7U);   // 8 is done, alone
  EXPECT_EQ(workers.Report(2), 12U);  // of 8 and 10, though 9 is under way
  EXPECT_EQ(workers.Token(2).inputs[0].token, 8U);
  EXPECT_EQ(workers.Token(2).inputs[1].token, 10U);
  EXPECT_EQ(workers.Token(2).samples, 64U);
}

// The bucket of Figure 4: T-1 tokens 6 and 7, and T-2 tokens 9 (of 2 and 3) and 10 (of 4 and 5).
class Figure4 {
 public:
  explicit Figure4(const std::vector<uint32_t>& held_by_worker_0)
      : plan_(Figure3(2)),
        generator_(plan_),
        info_(plan_.numbers(), 2),
        bucket_(plan_, permits_, generator_, info_) {
    generator_.Begin(0, 64);
    generator_.Begin(1, 64);
    for (uint32_t token = 0; token < 6; ++token) {
      const bool held = std::count(held_by_worker_0.begin(), held_by_worker_0.end(), token) != 0;
      info_.Complete(held ? 0 : 1, token);
      for (const uint32_t made : generator_.Complete(token)) {
        if (made != 8) {  // which somebody has
          bucket_.Add(made, 1);
        }
      }
    }
    bucket_.Add(6, 0);
    bucket_.Add(7, 0);
  }
  FelaBucket& bucket() { return bucket_; }

 private:
  const FelaPlan plan_;
  const FelaPermits permits_{plan_};
  FelaGenerator generator_;
  FelaInfoMapping info_;
  FelaBucket bucket_;
};

TEST(FelaBucketTest, TheHighestLevelOfFigure4GoesFirstThenWhatIsHeld) {
  Figure4 figure({4, 5});
  EXPECT_EQ(figure.bucket().Take(0), 10U);  // its locality score is 1, that of 9 is 0
  EXPECT_EQ(figure.bucket().Take(0), 9U);
  EXPECT_EQ(figure.bucket().Take(0), 6U);
  EXPECT_EQ(figure.bucket().Take(0), 7U);
  EXPECT_EQ(figure.bucket().Take(0), std::nullopt);
}

TEST(FelaBucketTest, WhoHolds2And3OfFigure4Gets9) {
  Figure4 figure({2, 3});
  EXPECT_EQ(figure.bucket().Take(0), 9U);
}

TEST(FelaBucketTest, OfEqualScoresInFigure4TheSmallestGoes) {
  Figure4 figure({3, 4});
  EXPECT_EQ(figure.bucket().Take(0), 9U);
}

TEST(FelaSchedulerTest, WithHfWorkersStayWithTheirOwnSamples) {
  FelaRules rules = Figure3(2);
  rules.hierarchical = true;
  Workers workers(rules);
  EXPECT_EQ(workers.Ask(0), 0U);
  EXPECT_EQ(workers.Ask(1), 4U);
  for (const uint32_t worker : {0U, 1U}) {
    EXPECT_EQ(workers.Report(worker), worker == 0 ? 1U : 5U);
    EXPECT_EQ(workers.Report(worker), 8U + worker);  // of its own two
  }
  while (!workers.scheduler().counters().iterations) {
    for (const uint32_t worker : {0U, 1U}) {
      if (workers.InHand(worker)) {
        workers.Report(worker);
      }
    }
  }
  EXPECT_EQ(workers.scheduler().counters().remote, 0U);
  EXPECT_EQ(workers.scheduler().counters().helped, 0U);
  EXPECT_EQ(workers.trained(), (std::vector<uint32_t>{3, 2, 1}));
}

TEST(FelaSchedulerTest, HelpersGoToWhomNobodyHelpsAndWhoIsSlowest) {
  FelaRules rules = Figure3(4);
  rules.hierarchical = true;
  rules.weights = {1, 1, 1};
  Workers workers(rules);
  workers.Ask(0);
  EXPECT_EQ(workers.Ask(3), 6U);
  // Worker 0 trains all of its own, backward too.
  for (int i = 0; i < 9; ++i) {
    workers.Report(0);
  }
  EXPECT_EQ(workers.Report(0), 2U);  // of worker 1, which sleeps like worker 2
  workers.Report(3);
  for (int i = 0; i < 8; ++i) {
    workers.Report(3);
  }
  EXPECT_EQ(workers.Report(3), 4U);  // of worker 2, whom nobody helps
  EXPECT_EQ(workers.Token(3).inputs[0].holder, 2U);
}

TEST(FelaSchedulerTest, OnlyTheSubsetTrainsAConditionalSubModel) {
  FelaRules rules = Figure3(4);
  rules.hierarchical = true;
  rules.subsets = {{}, {1}, {}};
  Workers workers(rules);
  for (uint32_t worker = 0; worker < 4; ++worker) {
    workers.Ask(worker);
  }
  EXPECT_EQ(workers.Report(0), 1U);
  EXPECT_EQ(workers.Report(0), 3U);  // of a helper: 8 waits for worker 1
  EXPECT_EQ(workers.Report(1), 8U);  // T-2 goes before T-1
  EXPECT_EQ(workers.Token(1).inputs[0].holder, 0U);
}

TEST(FelaSchedulerTest, ReportsOfWhatWasReportedChangeNothing) {
  Workers workers(Figure3(2));
  workers.Ask(0);
  workers.Report(0);
  Orders orders;
  ASSERT_TRUE(workers.scheduler().Report(0, 0, 0, &orders).ok());
  EXPECT_TRUE(orders.assignments.empty());
  EXPECT_EQ(workers.scheduler().counters().duplicates, 1U);
  EXPECT_EQ(workers.scheduler().counters().tokens, 1U);
}

TEST(FelaSchedulerTest, WhatAWorkerWasNotGivenItCannotReport) {
  Workers workers(Figure3(2));
  workers.Ask(0);
  Orders orders;
  EXPECT_FALSE(workers.scheduler().Report(0, 0, 3, &orders).ok());
  EXPECT_FALSE(workers.scheduler().Report(1, 0, 0, &orders).ok());
  EXPECT_FALSE(workers.scheduler().Report(1, 0, 1U << 30, &orders).ok());
  EXPECT_FALSE(workers.scheduler().Report(1, 7, 0, &orders).ok());
  EXPECT_FALSE(workers.scheduler().Begin(0, 0, 64, &orders).ok());
  EXPECT_FALSE(workers.scheduler().Begin(9, 0, 64, &orders).ok());
}

}  // namespace
}  // namespace trepak
