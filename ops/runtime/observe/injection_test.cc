#include "ops/runtime/observe/injection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

namespace trepak {
namespace {

InjectionOptions With(DelayRule rule, int rank = 0, int size = 4, uint64_t seed = 1) {
  InjectionOptions options;
  options.delays = {rule};
  options.rank = rank;
  options.size = size;
  options.seed = seed;
  return options;
}

TEST(DelaySecondsTest, UniformFillsItsRange) {
  const InjectionOptions options = With({DelayRule::Kind::kUniform, 0.05, 0.10, 0});
  double sum = 0, squares = 0;
  constexpr int kSteps = 20000;
  for (int step = 0; step < kSteps; ++step) {
    const double delay = DelaySeconds(options, step);
    ASSERT_GE(delay, 0.05);
    ASSERT_LT(delay, 0.10);
    sum += delay;
    squares += delay * delay;
  }
  const double mean = sum / kSteps;
  EXPECT_NEAR(mean, 0.075, 0.0005);
  EXPECT_NEAR(std::sqrt(squares / kSteps - mean * mean), 0.05 / std::sqrt(12.0), 0.0005);
}

TEST(DelaySecondsTest, RoundRobinDelaysOneRankInEachStep) {
  for (int step = 0; step < 12; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto options = With({DelayRule::Kind::kRoundRobin, 0, 2.0, 0}, rank);
      EXPECT_EQ(DelaySeconds(options, step), step % 4 == rank ? 2.0 : 0.0);
    }
  }
}

TEST(DelaySecondsTest, ProbabilityIsKept) {
  const auto options = With({DelayRule::Kind::kProbability, 0, 6.0, 0.3});
  int delayed = 0;
  constexpr int kSteps = 20000;
  for (int step = 0; step < kSteps; ++step) {
    const double delay = DelaySeconds(options, step);
    ASSERT_TRUE(delay == 0.0 || delay == 6.0);
    delayed += delay > 0;
  }
  EXPECT_NEAR(delayed / static_cast<double>(kSteps), 0.3, 0.015);
}

TEST(DelaySecondsTest, SeedDecidesAndRanksDiffer) {
  const DelayRule rule{DelayRule::Kind::kUniform, 0, 1, 0};
  int same_rank = 0, same_seed = 0;
  for (int step = 0; step < 100; ++step) {
    const double delay = DelaySeconds(With(rule), step);
    EXPECT_EQ(delay, DelaySeconds(With(rule), step));
    same_rank += delay == DelaySeconds(With(rule, 1), step);
    same_seed += delay == DelaySeconds(With(rule, 0, 4, 2), step);
  }
  EXPECT_EQ(same_rank, 0);
  EXPECT_EQ(same_seed, 0);
}

TEST(DelaySecondsTest, RulesAddUp) {
  InjectionOptions options = With({DelayRule::Kind::kRoundRobin, 0, 2.0, 0});
  options.delays.push_back({DelayRule::Kind::kProbability, 0, 1.0, 1.0});
  EXPECT_EQ(DelaySeconds(options, 0), 3.0);
  EXPECT_EQ(DelaySeconds(options, 1), 1.0);
}

TEST(InjectionTest, DelayIsTakenOncePerStep) {
  Injection injection;
  EXPECT_EQ(injection.slow(), 1.0);
  EXPECT_EQ(injection.TakeDelay(), Injection::Duration::zero());
  InjectionOptions options = With({DelayRule::Kind::kProbability, 0, 0.5, 1.0});
  options.slow = 1.5;
  injection.Configure(options);
  EXPECT_EQ(injection.slow(), 1.5);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(injection.step(), step);
    EXPECT_EQ(injection.TakeDelay(), std::chrono::milliseconds(500));
    EXPECT_EQ(injection.TakeDelay(), Injection::Duration::zero());
    injection.EndStep();
  }
}

TEST(InjectionDeathTest, KillsItselfAtTheEndOfTheStep) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Injection injection;
  InjectionOptions options;
  options.kill_step = 2;
  injection.Configure(options);
  injection.EndStep();
  injection.EndStep();
  EXPECT_EXIT(injection.EndStep(), testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace trepak
