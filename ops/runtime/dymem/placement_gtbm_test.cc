// Group Tensors By Mobility.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/dymem/placement_units.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::Pair;

// Figure 2.7: 200 and 300 are free, but a tensor with 4 references lies between them, so that best-
// fit has no place for 400.
TEST(PlacementGtbmTest, ServesWhatBestFitCannotInFigure27) {
  for (const auto kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
    Units pool(kind, 700);
    const int64_t before = pool.Take(200);
    ASSERT_GE(pool.TakeTemporary(200, 4), 0);
    const int64_t after = pool.Take(300);
    ASSERT_TRUE(pool.Free(before));
    ASSERT_TRUE(pool.Free(after));
    if (kind == PoolKind::kGtbm) {
      EXPECT_EQ(pool.FragmentationFor(400), 0);
      EXPECT_EQ(pool.FragmentationFor(501), 1);
      EXPECT_EQ(pool.Take(400), 0);
    } else {
      EXPECT_THAT(pool.Holes(), ElementsAre(Pair(0, 200), Pair(400, 300)));
      EXPECT_EQ(pool.FragmentationFor(400), 1);
      EXPECT_DOUBLE_EQ(pool.FragmentationFor(300), 0.4);
      EXPECT_EQ(pool.FragmentationFor(100), 0);
      EXPECT_EQ(pool.Take(400), -1);
      ASSERT_EQ(pool->figures().extent_peak, 700 * kUnit);
    }
  }
}

TEST(PlacementGtbmTest, GroupsTensorsByMobility) {
  Units pool(PoolKind::kGtbm, 100);
  EXPECT_EQ(pool.Take(10), 0);
  EXPECT_EQ(pool.TakeTemporary(5, 2), 95);
  EXPECT_EQ(pool.TakeReclaimed(1), 100);
  EXPECT_EQ(pool.Take(20), 10);
  EXPECT_EQ(pool.TakeTemporary(7, 1), 88);
  EXPECT_EQ(pool.TakeReclaimed(2), 101);
  EXPECT_EQ(pool.extent(), 45U);
  EXPECT_EQ(pool.occupied(), 45U);
  EXPECT_EQ(pool->figures().main_peak, 42 * kUnit);
  // The gap of the main space is memory that the incremental space can have, too.
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(30, 55)));
  EXPECT_EQ(pool->offsets(), 200 * kUnit);

  ASSERT_TRUE(pool.Free(0));
  EXPECT_EQ(pool.extent(), 45U);  // it is a hole
  EXPECT_EQ(pool.Take(10), 0);
  ASSERT_TRUE(pool.Free(10));
  EXPECT_EQ(pool.extent(), 25U);
  ASSERT_TRUE(pool.Free(95));
  EXPECT_EQ(pool.extent(), 25U);
  ASSERT_TRUE(pool.Free(88));
  EXPECT_EQ(pool.extent(), 13U);
  ASSERT_TRUE(pool.Free(101));
  ASSERT_TRUE(pool.Free(100));
  ASSERT_TRUE(pool.Free(0));
  EXPECT_EQ(pool.extent(), 0U);
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(0, 100)));
}

TEST(PlacementGtbmTest, TakesHolesBeforeItExtendsARegion) {
  Units pool(PoolKind::kGtbm, 100);
  MakeHoles(&pool);
  EXPECT_EQ(pool.Take(3), 13);
  EXPECT_EQ(pool.Take(3), 0);  // though much is free above
  // The same in its mirror image.
  Units mirror(PoolKind::kGtbm, 100);
  std::vector<int64_t> offsets;
  for (const size_t units : {9, 1, 2, 1, 3, 1}) {
    offsets.push_back(mirror.TakeTemporary(units, 1));
  }
  EXPECT_THAT(offsets, ElementsAre(91, 90, 88, 87, 84, 83));
  for (const size_t freed : {0, 2, 4}) {
    ASSERT_TRUE(mirror.Free(offsets[freed]));
  }
  EXPECT_THAT(mirror.Holes(), ElementsAre(Pair(0, 83), Pair(84, 3), Pair(88, 2), Pair(91, 9)));
  EXPECT_EQ(mirror.TakeTemporary(3, 1), 84);
  EXPECT_EQ(mirror.TakeTemporary(3, 1), 97);
}

// Section 4.1.3.2: the tensors of a nonlinear block go in the order opposite to that in which they
// came, so that no hole is left at any time.
TEST(PlacementGtbmTest, ANonlinearBlockLeavesNoHoles) {
  Units pool(PoolKind::kGtbm, 100);
  const int64_t fork = pool.TakeTemporary(8, 4);  // l0, which l1 to l4 read
  std::vector<int64_t> ends;                      // l5, l2, l6, which wait for l9
  for (const size_t units : {3, 2, 4}) {
    const int64_t inside = pool.Take(6);  // within a branch
    ends.push_back(pool.TakeTemporary(units, 1));
    ASSERT_TRUE(pool.Free(inside));
    EXPECT_EQ(pool.extent(), pool.live());
  }
  EXPECT_EQ(fork, 92);
  EXPECT_THAT(ends, ElementsAre(89, 87, 83));
  for (const int64_t offset : {83, 87, 89, 92}) {
    ASSERT_TRUE(pool.Free(offset));
    EXPECT_EQ(pool.extent(), pool.live());
  }
  EXPECT_EQ(pool->figures().strays, 0U);
}

// Temporary tensors, in units of 2, from the high end down, with 4, 1, 3, 1, 2, 1 and 1 references.
// Those with one reference are freed, but for the last.
void MakeOrder(Units* pool) {
  for (const int references : {4, 1, 3, 1, 2, 1, 1}) {
    ASSERT_GE(pool->TakeTemporary(2, references), 0);
  }
  for (const int64_t offset : {96, 92, 88}) {
    ASSERT_TRUE(pool->Free(offset));
  }
}

TEST(PlacementGtbmTest, TemporaryTensorsLieOnOnesWithAsManyReferences) {
  const std::vector<std::pair<int, int64_t>> expected = {{5, 96}, {4, 96}, {3, 92},
                                                         {2, 88}, {1, 88}, {0, 88}};
  for (const auto& [references, offset] : expected) {
    Units pool(PoolKind::kGtbm, 100);
    MakeOrder(&pool);
    EXPECT_EQ(pool.TakeTemporary(2, references), offset) << references << " references";
  }
  // A hole knows what it lies on also when a part of it is taken, and when it grows.
  Units pool(PoolKind::kGtbm, 100);
  MakeOrder(&pool);
  EXPECT_EQ(pool.TakeTemporary(1, 1), 89);
  EXPECT_EQ(pool.TakeTemporary(1, 2), 93);  // what is left at 88 lies on one reference
  ASSERT_TRUE(pool.Free(94));
  EXPECT_THAT(pool.Holes(), ElementsAre(Pair(0, 86), Pair(88, 1), Pair(92, 1), Pair(94, 4)));
  EXPECT_EQ(pool.TakeTemporary(3, 4), 95);
}

TEST(PlacementGtbmTest, AHoleLiesOnWhatIsLeftBelowIt) {
  Units pool(PoolKind::kGtbm, 100);
  for (const int references : {1, 4, 1, 1, 1}) {
    ASSERT_GE(pool.TakeTemporary(2, references), 0);
  }
  for (const int64_t offset : {98, 92, 94}) {
    ASSERT_TRUE(pool.Free(offset));
  }
  EXPECT_EQ(pool.TakeTemporary(2, 3), 94);  // on the one with 4 references
}

TEST(PlacementGtbmTest, TemporaryTensorsGoDeepWhateverTheHolesSize) {
  Units pool(PoolKind::kGtbm, 100);
  for (const size_t units : {1, 3, 1, 2, 1}) {
    ASSERT_GE(pool.TakeTemporary(units, 1), 0);
  }
  for (const int64_t offset : {96, 93}) {
    ASSERT_TRUE(pool.Free(offset));
  }
  EXPECT_EQ(pool.TakeTemporary(2, 3), 97);
}

TEST(PlacementGtbmTest, AnyRegionMayTakeWhatTheLimitLeaves) {
  for (const auto mobility : {Mobility::kMovable, Mobility::kTemporary, Mobility::kReclaimed}) {
    Units pool(PoolKind::kGtbm, 10, 12);
    std::vector<int64_t> offsets;
    for (int i = 0; i < 10; ++i) {
      offsets.push_back(pool.Take(1, mobility));
      ASSERT_GE(offsets.back(), 0);
    }
    EXPECT_EQ(pool.Take(1, mobility), -1);
    for (const int64_t offset : offsets) {
      EXPECT_TRUE(pool.Free(offset));
    }
    EXPECT_EQ(pool.extent(), 0U);
  }
}

TEST(PlacementGtbmTest, TemporaryTensorsWithEnoughRoomDoNotPinTheFrontier) {
  Units pool(PoolKind::kGtbm, 100);
  MakeOrder(&pool);
  const int64_t many = pool.TakeTemporary(2, 4);
  const int64_t few = pool.TakeTemporary(2, 1);
  EXPECT_EQ(many, 96);
  EXPECT_EQ(few, 88);
  // Those with few references go, and the region shrinks to those with many.
  for (const int64_t offset : {few, int64_t{86}, int64_t{90}}) {
    ASSERT_TRUE(pool.Free(offset));
  }
  EXPECT_EQ(pool.extent(), 6U);
}

TEST(PlacementGtbmTest, PutsStraysIntoHolesOfOtherRegions) {
  Units pool(PoolKind::kGtbm, 20);
  const int64_t low = pool.Take(6);
  ASSERT_EQ(pool.Take(1), 6);
  const int64_t high = pool.TakeTemporary(4, 1);
  ASSERT_EQ(pool.TakeTemporary(1, 1), 15);
  const int64_t incremental = pool.TakeReclaimed(3);
  ASSERT_EQ(pool.TakeReclaimed(1), 23);
  ASSERT_EQ(pool.TakeReclaimed(4), 24);  // now the limit is reached
  for (const int64_t offset : {low, high, incremental}) {
    ASSERT_TRUE(pool.Free(offset));
  }
  EXPECT_EQ(pool->figures().strays, 0U);
  EXPECT_EQ(pool.TakeTemporary(5, 1), 0);  // the only hole that is large enough
  EXPECT_EQ(pool.Take(3), 20);             // the smallest one
  EXPECT_EQ(pool.TakeReclaimed(4), 16);
  EXPECT_EQ(pool->figures().strays, 3U);
  EXPECT_EQ(pool->figures().allocations, 10U);
  EXPECT_EQ(pool.Take(2), -1);
  EXPECT_EQ(pool.TakeTemporary(1, 1), 5);
  EXPECT_EQ(pool.TakeReclaimed(1), -1);
  for (const int64_t offset : {0, 20, 16, 5, 6, 15, 23, 24}) {
    ASSERT_TRUE(pool.Free(offset));  // each in the region where it is
  }
  EXPECT_EQ(pool.extent(), 0U);
}

}  // namespace
}  // namespace trepak
