#include "ops/runtime/dymem/memory_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;

MemoryPoint At(int64_t time, size_t live, size_t occupied) {
  return {Clock::time_point(std::chrono::nanoseconds(time)), live, occupied};
}

TEST(MemoryCurveTest, KeepsEachChangeWhileThereIsRoom) {
  MemoryCurve curve;
  EXPECT_TRUE(curve.points().empty());
  for (size_t i = 0; i < MemoryCurve::kMostPoints; ++i) {
    curve.Add(At(static_cast<int64_t>(i), i, 2 * i));
  }
  ASSERT_EQ(curve.points().size(), MemoryCurve::kMostPoints);
  for (size_t i = 0; i < MemoryCurve::kMostPoints; ++i) {
    EXPECT_EQ(curve.points()[i].live, i);
    EXPECT_EQ(curve.points()[i].occupied, 2 * i);
  }
}

TEST(MemoryCurveTest, PointsStandForAsManyChangesEachAndLoseNoPeak) {
  std::mt19937 random(7);
  MemoryCurve curve;
  std::vector<MemoryPoint> changes;
  for (int64_t i = 0; i < 100'000; ++i) {
    const size_t live = random() % 1000;
    changes.push_back(At(10 * i, live, live + random() % 100));
    curve.Add(changes.back());
    ASSERT_LE(curve.points().size(), MemoryCurve::kMostPoints);
    if (i % 997 != 0) {
      continue;
    }
    // By powers of two, the least that is enough.
    size_t each = 1;
    while (each * MemoryCurve::kMostPoints < changes.size()) {
      each *= 2;
    }
    const std::vector<MemoryPoint>& points = curve.points();
    ASSERT_EQ(points.size(), (changes.size() + each - 1) / each) << i;
    for (size_t point = 0; point < points.size(); ++point) {
      MemoryPoint expected = changes[point * each];
      for (size_t of = point * each; of < std::min((point + 1) * each, changes.size()); ++of) {
        expected.live = std::max(expected.live, changes[of].live);
        expected.occupied = std::max(expected.occupied, changes[of].occupied);
      }
      ASSERT_EQ(points[point].time, expected.time) << i << ", point " << point;
      ASSERT_EQ(points[point].live, expected.live) << i << ", point " << point;
      ASSERT_EQ(points[point].occupied, expected.occupied) << i << ", point " << point;
    }
  }
}

TEST(MemoryCurveTest, BeginsAnew) {
  MemoryCurve curve;
  for (int64_t i = 0; i < 5000; ++i) {
    curve.Add(At(i, 9, 9));
  }
  curve.Clear();
  EXPECT_TRUE(curve.points().empty());
  curve.Add(At(6000, 1, 2));
  curve.Add(At(6001, 3, 4));
  ASSERT_EQ(curve.points().size(), 2U);  // a point for each change again
  EXPECT_EQ(curve.points()[0].live, 1U);
  EXPECT_EQ(curve.points()[1].occupied, 4U);
}

}  // namespace
}  // namespace trepak
