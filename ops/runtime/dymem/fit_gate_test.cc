#include "ops/runtime/dymem/fit_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace trepak {
namespace {

constexpr size_t kLimit = 900;

class FitGateTest : public testing::Test {
 protected:
  // Whether the step stayed at first. What it needs grows to what is given.
  bool Step(size_t needed, size_t limit = kLimit, bool is_short = false) {
    FitStep step(gate_, limit);
    const bool stays = step.stays();
    for (const size_t now : {needed / 2, needed, needed / 3}) {
      step.Note(now);
      EXPECT_EQ(step.stays(), stays);
    }
    if (is_short) {
      EXPECT_EQ(step.Short(), stays);
      EXPECT_FALSE(step.Short()) << "the next tensor leaves";
      EXPECT_FALSE(step.stays()) << "what comes later in the step leaves at once";
    }
    return stays;
  }

  const std::shared_ptr<FitGate> gate_ = std::make_shared<FitGate>();
};

TEST_F(FitGateTest, TheFirstStepSwapsAndLaterOnesStayIfTheyFit) {
  EXPECT_FALSE(Step(500));
  EXPECT_TRUE(Step(500));
  EXPECT_TRUE(Step(500));
}

TEST_F(FitGateTest, TheReserveMustFitToo) {
  EXPECT_FALSE(Step(801));
  EXPECT_FALSE(Step(800)) << "801 and an eighth are more than 900";
  EXPECT_TRUE(Step(800)) << "800 and an eighth are 900";
}

TEST_F(FitGateTest, WhatHasStayedGoesOnToStay) {
  EXPECT_FALSE(Step(500));
  EXPECT_TRUE(Step(kLimit + 50)) << "branches that run side by side need more, and beta is there";
  EXPECT_TRUE(Step(kLimit + 50));
  EXPECT_TRUE(Step(kLimit + 50));
}

TEST_F(FitGateTest, ALimitThatFellCounts) {
  EXPECT_FALSE(Step(500));
  EXPECT_TRUE(Step(500));
  EXPECT_TRUE(Step(500, 500));
  EXPECT_FALSE(Step(500, 499));
  EXPECT_FALSE(Step(500, 499));
  EXPECT_TRUE(Step(500));
}

TEST_F(FitGateTest, AfterAShortageOnlyAClearlySmallerNeedStays) {
  EXPECT_FALSE(Step(720));
  EXPECT_TRUE(Step(720, kLimit, /*is_short=*/true));
  EXPECT_FALSE(Step(720)) << "tells what a step needs that swaps";
  EXPECT_FALSE(Step(720));
  EXPECT_FALSE(Step(640)) << "by the step before";
  EXPECT_FALSE(Step(639)) << "640 and its eighth are what was too much";
  EXPECT_TRUE(Step(639));
}

// Steps that stay run their layers in no order.
TEST_F(FitGateTest, StepsThatNeedMoreWhenTheyStayDoNotTryAgainAndAgain) {
  EXPECT_FALSE(Step(750));
  EXPECT_TRUE(Step(890, kLimit, true));
  for (int step = 0; step < 10; ++step) {
    EXPECT_FALSE(Step(750)) << step;
  }
}

TEST_F(FitGateTest, ASmallStepAfterAShortageDoesNotStandForTheLargerOnes) {
  EXPECT_FALSE(Step(750));
  EXPECT_TRUE(Step(890, kLimit, true));
  EXPECT_FALSE(Step(100)) << "the last batch of an epoch";
  EXPECT_FALSE(Step(600));
  EXPECT_FALSE(Step(600));
  EXPECT_FALSE(Step(500));
  EXPECT_TRUE(Step(500)) << "clearly less than 600";
}

TEST_F(FitGateTest, AShortageOfAStepThatSwapsIsNone) {
  EXPECT_FALSE(Step(500, kLimit, true));
  EXPECT_TRUE(Step(500));
}

TEST_F(FitGateTest, AStepKeepsItsDecisionWhileAnotherBegins) {
  EXPECT_FALSE(Step(2000));
  FitStep swaps(gate_, kLimit);
  EXPECT_FALSE(Step(100));
  EXPECT_TRUE(Step(100));
  EXPECT_FALSE(swaps.stays());
}

TEST_F(FitGateTest, AnyThreadMayAsk) {
  EXPECT_FALSE(Step(500));
  std::atomic<int> firsts{0};
  constexpr int kSteps = 200;
  for (int number = 0; number < kSteps; ++number) {
    FitStep step(gate_, kLimit);
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        step.Note(400 + thread);
        if (number == kSteps - 1) {
          firsts += step.Short() ? 1 : 0;
        } else {
          EXPECT_TRUE(step.stays());
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_EQ(firsts, 1);
}

}  // namespace
}  // namespace trepak
