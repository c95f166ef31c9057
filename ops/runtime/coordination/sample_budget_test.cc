#include "ops/runtime/coordination/sample_budget.h"

#include <gtest/gtest.h>

namespace trepak {
namespace {

TEST(SampleBudgetTest, WhatWasDealtIsTakenOnce) {
  SampleBudget budget;
  budget.Deal(32);
  budget.Deal(8);
  EXPECT_EQ(budget.TakeDealt(), 40u);
  EXPECT_EQ(budget.TakeDealt(), 0u);
}

TEST(SampleBudgetTest, AnEpochBeginsWithWhatTheOneBeforeHadTooMany) {
  SampleBudget budget;
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 100u);
  budget.Count(96);
  EXPECT_FALSE(budget.HasReached(100));
  budget.Count(96);
  EXPECT_TRUE(budget.HasReached(100));
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 200u);
  budget.Count(8);
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 300u) << "an epoch is never empty";
}

TEST(SampleBudgetTest, OtherTrainingLeavesAnEpochItsLength) {
  SampleBudget budget;
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 100u);
  budget.Count(30);  // and somebody stops
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 130u);
  budget.Count(500);
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 630u);
}

TEST(SampleBudgetTest, ADatasetOwesNothingToTheOneBefore) {
  SampleBudget budget;
  EXPECT_EQ(budget.EndOfEpoch(1, 100), 100u);
  budget.Count(160);
  budget.Deal(8);  // and is not trained with
  EXPECT_EQ(budget.EndOfEpoch(2, 100), 260u);
  EXPECT_EQ(budget.TakeDealt(), 0u);
  budget.Count(120);
  EXPECT_EQ(budget.EndOfEpoch(2, 100), 360u);
}

}  // namespace
}  // namespace trepak
