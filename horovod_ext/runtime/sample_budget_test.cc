#include "horovod_ext/runtime/sample_budget.h"

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
  EXPECT_EQ(budget.EndOfEpoch(100), 100u);
  budget.Count(96);
  EXPECT_FALSE(budget.HasReached(100));
  budget.Count(96);
  EXPECT_TRUE(budget.HasReached(100));
  EXPECT_EQ(budget.EndOfEpoch(100), 200u);
  budget.Count(8);
  EXPECT_EQ(budget.EndOfEpoch(100), 300u) << "an epoch is never empty";
}

TEST(SampleBudgetTest, OtherTrainingLeavesAnEpochItsLength) {
  SampleBudget budget;
  EXPECT_EQ(budget.EndOfEpoch(100), 100u);
  budget.Count(30);  // and somebody stops
  EXPECT_EQ(budget.EndOfEpoch(100), 130u);
  budget.Count(500);
  EXPECT_EQ(budget.EndOfEpoch(100), 630u);
}

}  // namespace
}  // namespace trepak
