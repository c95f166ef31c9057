#include "ops/runtime/dymem/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "ops/runtime/dymem/placement_units.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(PlacementTest, SizesAreRoundedToGranules) {
  const auto placement = Placement::Make(PoolKind::kBestFit, 4 * kUnit + 100);
  EXPECT_EQ(placement->limit(), 4 * kUnit);
  EXPECT_EQ(placement->Allocate({1}), 0U);
  EXPECT_EQ(placement->Allocate({kUnit + 1}), kUnit);
  EXPECT_EQ(placement->Allocate({0}), 3 * kUnit);  // not the offset of another
  EXPECT_EQ(placement->Allocate({1}), std::nullopt);
  EXPECT_EQ(placement->figures().live, 4 * kUnit);
  EXPECT_EQ(placement->figures().allocations, 3U);
}

TEST(PlacementTest, WhatExceedsAnyMemoryDoesNotFit) {
  for (const auto kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
    Units pool(kind, 10);
    EXPECT_EQ(pool->Allocate({std::numeric_limits<size_t>::max()}), std::nullopt);
    EXPECT_EQ(pool->Allocate({10 * kUnit + 1}), std::nullopt);
    EXPECT_EQ(pool.Take(11), -1);
    EXPECT_GE(pool.Take(10), 0);
    Units empty(kind, 0);
    EXPECT_EQ(empty->Allocate({0}), std::nullopt);
    EXPECT_EQ(empty->FragmentationFor(1), 0);
    EXPECT_THAT(empty.Holes(), ElementsAre());
  }
}

TEST(PlacementTest, AFreeOfWhatIsNotThereIsTold) {
  for (const auto kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
    Units pool(kind, 10, 20);
    for (const auto mobility : {Mobility::kMovable, Mobility::kTemporary, Mobility::kReclaimed}) {
      const int64_t first = pool.Take(2, mobility);
      const int64_t second = pool.Take(1, mobility);
      EXPECT_FALSE(pool.Free(first + 1));  // within a block
      EXPECT_TRUE(pool.Free(first));
      EXPECT_FALSE(pool.Free(first));
      EXPECT_TRUE(pool.Free(second));
      EXPECT_FALSE(pool.Free(second));
    }
    EXPECT_FALSE(pool.Free(7));
    EXPECT_FALSE(pool.Free(20));
    EXPECT_FALSE(pool.Free(100));
    EXPECT_FALSE(pool->Free(std::numeric_limits<size_t>::max()));
    EXPECT_FALSE(pool->Free(1));
    EXPECT_EQ(pool.live(), 0U);
    EXPECT_EQ(pool.extent(), 0U);
  }
}

TEST(PlacementTest, BestFitTakesTheSmallestHole) {
  Units pool(PoolKind::kBestFit, 30);
  MakeHoles(&pool);
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(0, 9), Pair(10, 2), Pair(13, 3), Pair(17, 13)));
  EXPECT_EQ(pool.Take(2), 10);
  EXPECT_EQ(pool.Take(1), 13);
  EXPECT_EQ(pool.Take(2), 14);  // what was left of that hole
  EXPECT_EQ(pool.Take(3), 0);
  EXPECT_EQ(pool.Take(7), 17);
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(3, 6), Pair(24, 6)));
  EXPECT_EQ(pool.Take(1), 3);  // the lowest of equal ones
  EXPECT_EQ(pool.Take(6), 24);
}

TEST(PlacementTest, BestFitCountsWhatIsAboveAsABlock) {
  Units pool(PoolKind::kBestFit, 20);
  MakeHoles(&pool);
  EXPECT_EQ(pool.Take(3), 13);
  EXPECT_EQ(pool.Take(3), 17);  // 3 are left there, whereas the hole has 9
  EXPECT_EQ(pool.Take(3), 0);
}

TEST(PlacementTest, FirstFitTakesTheLowestHole) {
  Units pool(PoolKind::kFirstFit, 20);
  MakeHoles(&pool);
  EXPECT_EQ(pool.Take(2), 0);
  EXPECT_EQ(pool.Take(6), 2);
  EXPECT_EQ(pool.Take(2), 10);
  EXPECT_EQ(pool.Take(2), 13);
  EXPECT_EQ(pool.Take(1), 8);
  EXPECT_EQ(pool.Take(3), 17);
  EXPECT_EQ(pool.Take(1), 15);
  EXPECT_EQ(pool.Take(1), -1);
  EXPECT_EQ(pool->figures().strays, 0U);
}

TEST(PlacementTest, FreeingCoalescesOnBothSides) {
  Units pool(PoolKind::kBestFit, 10);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(pool.Take(1), i);
  }
  for (const int64_t offset : {4, 6}) {
    ASSERT_TRUE(pool.Free(offset));
  }
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(4, 1), Pair(6, 1)));
  ASSERT_TRUE(pool.Free(5));
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(4, 3)));
  ASSERT_TRUE(pool.Free(0));
  EXPECT_EQ(pool.occupied(), 9U);  // from the lowest live block
  EXPECT_EQ(pool.extent(), 10U);
  ASSERT_TRUE(pool.Free(8));
  ASSERT_TRUE(pool.Free(9));
  EXPECT_EQ(pool.occupied(), 7U);
  ASSERT_TRUE(pool.Free(7));
  EXPECT_EQ(pool.extent(), 4U);
  EXPECT_EQ(pool.occupied(), 3U);
  EXPECT_EQ(pool->figures().occupied_peak, 10 * kUnit);
}

TEST(PlacementTest, GrowingKeepsWhatWasGiven) {
  for (const auto kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
    Units pool(kind, 10, 15);
    const int64_t first = pool.Take(6);
    const int64_t second = pool.TakeTemporary(4, 2);
    EXPECT_EQ(pool.Take(3), -1);
    EXPECT_EQ(pool.TakeTemporary(3, 2), -1);
    EXPECT_FALSE(pool.Grow(6));
    EXPECT_TRUE(pool.Grow(3));
    EXPECT_EQ(pool->limit(), 13 * kUnit);
    EXPECT_EQ(pool.TakeTemporary(3, 2), kind == PoolKind::kGtbm ? 8 : 10);
    EXPECT_TRUE(pool.Grow(2));
    EXPECT_FALSE(pool.Grow(1));
    EXPECT_EQ(pool.TakeReclaimed(2), kind == PoolKind::kGtbm ? 15 : 13);
    EXPECT_TRUE(pool.Free(first));
    EXPECT_TRUE(pool.Free(second));
  }
}

TEST(PlacementTest, TheLimitFollowsFromTheFirstIteration) {
  Units pool(PoolKind::kGtbm, 100);
  const auto iterate = [&pool] {
    const int64_t reclaimed = pool.TakeReclaimed(3);
    const int64_t fork = pool.TakeTemporary(10, 2);
    const int64_t inside = pool.Take(20);
    const bool fits = reclaimed >= 0 && fork >= 0 && inside >= 0;
    return (reclaimed < 0 || pool.Free(reclaimed)) && (fork < 0 || pool.Free(fork)) &&
           (inside < 0 || pool.Free(inside)) && fits;
  };
  const int64_t before = pool.Take(50);  // of what is no iteration
  ASSERT_TRUE(pool.Free(before));
  EXPECT_EQ(pool->squeeze_gap(), 50 * kUnit);
  pool->ResetPeaks();
  ASSERT_TRUE(iterate());
  EXPECT_EQ(pool->figures().live_peak, 33 * kUnit);
  EXPECT_EQ(pool->figures().main_peak, 30 * kUnit);
  EXPECT_EQ(pool->squeeze_gap(), 67 * kUnit);
  const size_t beta = 2 * kUnit;
  ASSERT_TRUE(pool->Lower(pool->limit() - pool->squeeze_gap() + beta));
  EXPECT_EQ(pool->limit(), 35 * kUnit);
  EXPECT_TRUE(iterate());
  ASSERT_TRUE(pool.Lower(40));  // it is lower already
  EXPECT_EQ(pool->limit(), 35 * kUnit);
  ASSERT_TRUE(pool.Lower(32));
  EXPECT_EQ(pool->squeeze_gap(), 0U);
  EXPECT_FALSE(iterate());
  EXPECT_TRUE(pool->Grow(beta));  // the thesis provisions an additional beta
  EXPECT_TRUE(iterate());

  const int64_t live = pool.Take(20);
  EXPECT_FALSE(pool.Lower(19));
  EXPECT_EQ(pool->limit(), 34 * kUnit);
  EXPECT_TRUE(pool.Lower(20));
  EXPECT_EQ(pool.Take(1), -1);
  EXPECT_TRUE(pool.Free(live));
}

TEST(PlacementTest, AMapHasAllBlocks) {
  Units pool(PoolKind::kGtbm, 10, 20);
  ASSERT_EQ(pool.Take(2), 0);
  ASSERT_EQ(pool.Take(1), 2);
  ASSERT_EQ(pool.TakeTemporary(3, 2), 17);
  ASSERT_EQ(pool.TakeReclaimed(1), 20);
  ASSERT_TRUE(pool.Free(0));
  const auto map = pool->Map();
  ASSERT_EQ(map.size(), 5U);
  const size_t offsets[] = {0, 2, 3, 17, 20};
  const size_t units[] = {2, 1, 3, 3, 1};
  const bool live[] = {false, true, false, true, true};
  for (size_t i = 0; i < map.size(); ++i) {
    EXPECT_EQ(map[i].offset, offsets[i] * kUnit);
    EXPECT_EQ(map[i].bytes, units[i] * kUnit);
    EXPECT_EQ(map[i].is_live, live[i]);
  }
  EXPECT_EQ(map[3].mobility, Mobility::kTemporary);
  EXPECT_EQ(map[4].mobility, Mobility::kReclaimed);
}

}  // namespace
}  // namespace trepak
