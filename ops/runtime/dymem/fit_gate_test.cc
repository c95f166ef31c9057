#include "ops/runtime/dymem/fit_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace trepak {
namespace {

constexpr size_t kLimit = 900;

// One whose need grows to what is given; returns whether all of it stayed.
bool Step(FitGate* gate, int64_t step, size_t needed, size_t limit = kLimit) {
  const bool keeps = gate->Keeps(step, needed / 2, limit);
  EXPECT_EQ(gate->Keeps(step, needed, limit), keeps);
  EXPECT_EQ(gate->Keeps(step, needed / 3, limit), keeps);
  return keeps;
}

TEST(FitGateTest, TheFirstStepSwapsAndLaterOnesStayIfTheyFit) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 1, 500));
  EXPECT_EQ(gate.kept_steps(), 0);
  EXPECT_TRUE(Step(&gate, 2, 500));
  EXPECT_TRUE(Step(&gate, 3, 500));
  EXPECT_EQ(gate.kept_steps(), 2);
}

TEST(FitGateTest, TheReserveMustFitToo) {
  // 800 and an eighth are 900.
  for (const auto& [needed, keeps] : {std::pair<size_t, bool>{800, true}, {801, false}}) {
    FitGate gate;
    EXPECT_FALSE(Step(&gate, 1, needed));
    EXPECT_EQ(Step(&gate, 2, needed), keeps) << needed;
  }
}

TEST(FitGateTest, TheMostThatWasNeededCountsWhoeverNotedIt) {
  FitGate gate;
  EXPECT_FALSE(gate.Keeps(1, 100, kLimit));
  gate.Note(850);
  gate.Note(300);
  EXPECT_FALSE(gate.Keeps(2, 100, kLimit)) << "850 and the reserve do not fit";
  gate.Note(700);
  EXPECT_TRUE(gate.Keeps(3, 100, kLimit));
}

TEST(FitGateTest, EachStepGoesByTheOneBefore) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 1, 2000));
  EXPECT_FALSE(Step(&gate, 2, 500)) << "the first did not fit";
  EXPECT_TRUE(Step(&gate, 3, 2000));
  EXPECT_FALSE(Step(&gate, 4, 2000));
  EXPECT_EQ(gate.kept_steps(), 1);
}

TEST(FitGateTest, AfterAShortageOnlyAClearlySmallerNeedStays) {
  FitGate gate;
  EXPECT_FALSE(Step(&gate, 1, 720));
  EXPECT_TRUE(gate.Keeps(2, 720, kLimit));
  gate.Short();
  gate.Short();  // the next tensor leaves
  EXPECT_FALSE(gate.Keeps(2, 720, kLimit)) << "what comes later in the step leaves at once";
  EXPECT_EQ(gate.kept_steps(), 0);
  EXPECT_FALSE(Step(&gate, 3, 720));
  EXPECT_FALSE(Step(&gate, 4, 640)) << "by the step before";
  EXPECT_FALSE(Step(&gate, 5, 639)) << "640 and its eighth are what was too much";
  EXPECT_TRUE(Step(&gate, 6, 639));
  EXPECT_EQ(gate.kept_steps(), 1);
}

TEST(FitGateTest, AShortageOfAStepThatSwapsIsNone) {
  FitGate gate;
  EXPECT_FALSE(gate.Keeps(1, 500, kLimit));
  gate.Short();
  EXPECT_EQ(gate.kept_steps(), 0);
  EXPECT_TRUE(Step(&gate, 2, 500));
}

// TensorFlow's are random.
TEST(FitGateTest, StepsMayHaveAnyNumber) {
  std::mt19937_64 random(1);
  std::vector<int64_t> first = {-1, 0, std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()};
  for (const int64_t id : first) {
    FitGate gate;
    EXPECT_FALSE(Step(&gate, id, 500)) << id;
    int64_t kept = 0;
    for (const int64_t next : first) {
      if (next != id) {
        EXPECT_TRUE(Step(&gate, next, 500)) << id << ", " << next;
        ++kept;
      }
    }
    for (int step = 0; step < 20; ++step) {
      EXPECT_TRUE(Step(&gate, static_cast<int64_t>(random()), 500));
      ++kept;
    }
    EXPECT_EQ(gate.kept_steps(), kept);
  }
}

TEST(FitGateTest, WhatIsNotedBeforeTheFirstStepDoesNotCount) {
  for (const int64_t id : {-1, 0, 7}) {
    FitGate gate;
    gate.Note(500);
    EXPECT_FALSE(Step(&gate, id, 500)) << id;
    EXPECT_TRUE(Step(&gate, 8, 500)) << id;
  }
}

TEST(FitGateTest, AnyThreadMayAsk) {
  constexpr int kSteps = 200;
  FitGate gate;
  gate.Keeps(0, 500, kLimit);
  std::atomic<int> kept{0};
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, step, thread] {
        kept += gate.Keeps(step, 400 + thread, kLimit) ? 1 : 0;
        gate.Note(300);
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
