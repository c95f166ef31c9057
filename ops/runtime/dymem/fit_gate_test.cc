#include "ops/runtime/dymem/fit_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace trepak {
namespace {

constexpr size_t kLimit = 900;

// One whose need grows to what is given; returns whether all of it stayed.
bool Step(FitGate* gate, size_t needed, size_t limit = kLimit) {
  gate->Begin(limit);
  const bool keeps = gate->keeps();
  for (const size_t now : {needed / 2, needed, needed / 3}) {
    gate->Note(now);
    EXPECT_EQ(gate->keeps(), keeps);
  }
  return keeps;
}

TEST(FitGateTest, TheFirstStepSwapsAndLaterOnesStayIfTheyFit) {
  FitGate gate;
  EXPECT_FALSE(gate.keeps());
  EXPECT_FALSE(Step(&gate, 500));
  EXPECT_EQ(gate.kept_steps(), 0);
  EXPECT_TRUE(Step(&gate, 500));
  EXPECT_TRUE(Step(&gate, 500));
  EXPECT_EQ(gate.kept_steps(), 2);
}

TEST(FitGateTest, TheReserveMustFitToo) {
  // 800 and an eighth are 900.
  for (const auto& [needed, keeps] : {std::pair<size_t, bool>{800, true}, {801, false}}) {
    FitGate gate;
    EXPECT_FALSE(Step(&gate, needed));
    EXPECT_EQ(Step(&gate, needed), keeps) << needed;
  }
}

TEST(FitGateTest, WhatHasStayedNeedsNoReserve) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 500));
  EXPECT_TRUE(Step(&gate, kLimit)) << "branches that run side by side need more";
  EXPECT_TRUE(Step(&gate, kLimit + 1));
  EXPECT_FALSE(Step(&gate, kLimit));
}

TEST(FitGateTest, EachStepGoesByTheOneBefore) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 2000));
  EXPECT_FALSE(Step(&gate, 500)) << "the first did not fit";
  EXPECT_TRUE(Step(&gate, 2000));
  EXPECT_FALSE(Step(&gate, 2000));
  EXPECT_EQ(gate.kept_steps(), 1);
}

TEST(FitGateTest, ALimitThatFellCounts) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 500));
  EXPECT_TRUE(Step(&gate, 500));
  EXPECT_FALSE(Step(&gate, 500, 499));
}

TEST(FitGateTest, AfterAShortageOnlyAClearlySmallerNeedStays) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 720));
  EXPECT_TRUE(Step(&gate, 720));
  gate.Short();
  gate.Short();  // the next tensor leaves
  EXPECT_FALSE(gate.keeps()) << "what comes later in the step leaves at once";
  EXPECT_EQ(gate.kept_steps(), 0);
  EXPECT_FALSE(Step(&gate, 720));
  EXPECT_FALSE(Step(&gate, 640)) << "by the step before";
  EXPECT_FALSE(Step(&gate, 639)) << "640 and its eighth are what was too much";
  EXPECT_TRUE(Step(&gate, 639));
  EXPECT_EQ(gate.kept_steps(), 1);
}

TEST(FitGateTest, AShortageOfAStepThatSwapsIsNone) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 500));
  gate.Short();
  EXPECT_EQ(gate.kept_steps(), 0);
  EXPECT_TRUE(Step(&gate, 500));
}

TEST(FitGateTest, WhatIsNotedBeforeTheFirstStepDoesNotCount) {
  FitGate gate;
  gate.Note(500);
  EXPECT_FALSE(Step(&gate, 500));
  EXPECT_TRUE(Step(&gate, 500));
}

TEST(FitGateTest, AnyThreadMayAsk) {
  constexpr int kSteps = 200;
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 500));
  std::atomic<int> kept{0};
  for (int step = 1; step <= kSteps; ++step) {
    gate.Begin(kLimit);
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, step, thread] {
        gate.Note(400 + thread);
        kept += gate.keeps() ? 1 : 0;
        if (thread == 2 && step == kSteps) {
          gate.Short();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_GE(kept, 3 * (kSteps - 1));
  EXPECT_EQ(gate.kept_steps(), kSteps - 1);
}

}  // namespace
}  // namespace trepak
