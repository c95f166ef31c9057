#include "ops/runtime/elastic_bsp/zipline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EndTimes View(const std::vector<double>& values, size_t workers) {
  return {values.data(), workers, values.size() / workers};
}

TEST(ZipLineTest, PicksTheFirstOfTwoMinimaAsInFigure3) {
  // Neither is the first set that has all workers: these two end at 5.5 and at 9.
  const std::vector<double> ends = {1, 4.5, 8, 2, 5, 8.5, 3, 5.5, 9};
  const Barrier barrier = ZipLine(View(ends, 3));
  EXPECT_EQ(barrier.waiting_time, 1.0);
  EXPECT_EQ(barrier.barrier_time, 5.5);
  EXPECT_THAT(barrier.iterations, ElementsAre(2, 2, 2));
}

TEST(ZipLineTest, ASetCountsWhenItHasAllWorkers) {
  // The ends of the first two are close together long before the third has one.
  const std::vector<double> ends = {1, 2, 3, 1, 2, 3, 30, 60, 90};
  const Barrier barrier = ZipLine(View(ends, 3));
  EXPECT_EQ(barrier.waiting_time, 27.0);
  EXPECT_EQ(barrier.barrier_time, 30.0);
  EXPECT_THAT(barrier.iterations, ElementsAre(3, 3, 1));
}

TEST(ZipLineTest, OneWorkerNeverWaits) {
  const std::vector<double> ends = {3, 4};
  const Barrier barrier = ZipLine(View(ends, 1));
  EXPECT_EQ(barrier.waiting_time, 0.0);
  EXPECT_EQ(barrier.barrier_time, 3.0);
  EXPECT_THAT(barrier.iterations, ElementsAre(1));
}

TEST(ZipLineTest, EqualAndHugeTimesAreFine) {
  const std::vector<double> equal(12, 7.0);
  EXPECT_EQ(ZipLine(View(equal, 4)).waiting_time, 0.0);
  EXPECT_EQ(ZipLine(View(equal, 4)).barrier_time, 7.0);
  constexpr double kHuge = std::numeric_limits<double>::max();
  const std::vector<double> huge = {-kHuge, 0, 1, kHuge};
  EXPECT_EQ(ZipLine(View(huge, 2)).waiting_time, 1.0);
  EXPECT_EQ(ZipLine(View(huge, 2)).barrier_time, 1.0);
  const std::vector<double> apart = {-kHuge, kHuge};  // by more than a double can say
  for (const Barrier& barrier : {ZipLine(View(apart, 2)), ZipLineOfPaper(View(apart, 2)),
                                 GridScan(View(apart, 2)), NaiveSearch(View(apart, 2))}) {
    EXPECT_EQ(barrier.waiting_time, std::numeric_limits<double>::infinity());
    EXPECT_THAT(barrier.iterations, ElementsAre(1, 1));
  }
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  const std::vector<double> tiny = {0, 4 * kTiny, kTiny, 9 * kTiny};
  EXPECT_EQ(ZipLine(View(tiny, 2)).waiting_time, kTiny);
  EXPECT_EQ(ZipLine(View(tiny, 2)).barrier_time, kTiny);
}

TEST(ZipLineTest, AllExactSearchesAgree) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t workers = 1 + random() % 4;
    const size_t iterations = 1 + random() % 5;
    std::vector<double> ends;
    for (size_t worker = 0; worker < workers; ++worker) {
      double time = 0;
      for (size_t i = 0; i < iterations; ++i) {
        ends.push_back(time += static_cast<double>(random() % 4));  // often equal
      }
    }
    const Barrier best = NaiveSearch(View(ends, workers));
    for (const Barrier& barrier :
         {ZipLine(View(ends, workers)), ZipLineOfPaper(View(ends, workers))}) {
      EXPECT_EQ(barrier.waiting_time, best.waiting_time);
      EXPECT_EQ(barrier.barrier_time, best.barrier_time);
    }
    EXPECT_GE(GridScan(View(ends, workers)).waiting_time, best.waiting_time);
    EXPECT_GE(FullGridScan(View(ends, workers)).waiting_time, best.waiting_time);
  }
}

TEST(ZipLineTest, WrongTimesAreNamed) {
  const std::vector<double> falling = {1, 2, 5, 4};
  EXPECT_THAT(std::string(CheckEndTimes(View(falling, 2)).message()),
              HasSubstr("iteration 1 of worker 1"));
  const std::vector<double> endless = {1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THAT(std::string(CheckEndTimes(View(endless, 1)).message()), HasSubstr("must be finite"));
  EXPECT_THAT(std::string(CheckEndTimes({nullptr, 3, 0}).message()),
              HasSubstr("3 workers with 0 iterations"));
}

}  // namespace
}  // namespace trepak
