#include "ops/runtime/dymem/swap_space.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

namespace trepak {
namespace {

TEST(SwapSpaceTest, SmallestPieceThatFitsIsTakenAndNeighboursJoin) {
  SwapSpace space(1000, 10);
  std::vector<size_t> begins(5);
  const std::vector<size_t> sizes = {100, 25, 300, 40, 100};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(space.Take(sizes[i], &begins[i]));
  }
  EXPECT_EQ(begins, (std::vector<size_t>{0, 100, 130, 430, 470}));
  EXPECT_EQ(space.used(), 570U);
  EXPECT_TRUE(space.Give(130, 300));
  EXPECT_TRUE(space.Give(0, 100));
  size_t begin = 0;
  ASSERT_TRUE(space.Take(91, &begin));
  EXPECT_EQ(begin, 0U) << "not the larger hole, nor what nobody has touched";
  EXPECT_TRUE(space.Give(0, 91));
  EXPECT_TRUE(space.Give(430, 40));
  EXPECT_TRUE(space.Give(100, 25));
  ASSERT_TRUE(space.Take(470, &begin)) << "four neighbours are one piece";
  EXPECT_EQ(begin, 0U);
}

TEST(SwapSpaceTest, RefusesWhatIsTooLargeAndWhatWasNotTaken) {
  SwapSpace space(105, 10);
  EXPECT_EQ(space.limit(), 100U);
  size_t begin = 7;
  EXPECT_FALSE(space.Take(101, &begin));
  EXPECT_FALSE(space.Take(SIZE_MAX, &begin));
  ASSERT_TRUE(space.Take(0, &begin));
  EXPECT_TRUE(space.Give(begin, 0));
  ASSERT_TRUE(space.Take(95, &begin));
  EXPECT_FALSE(space.Take(1, &begin));
  EXPECT_FALSE(space.Give(10, 10));
  EXPECT_FALSE(space.Give(0, 10));
  EXPECT_FALSE(space.Give(0, SIZE_MAX));
  EXPECT_TRUE(space.Give(0, 95));
  EXPECT_FALSE(space.Give(0, 95));
  EXPECT_EQ(space.used(), 0U);
  EXPECT_EQ(space.peak(), 100U);
  EXPECT_EQ(space.largest_free(), 100U);
}

TEST(SwapSpaceTest, PiecesNeverOverlapAndAllIsFreeAtTheEnd) {
  std::minstd_rand random(5);
  SwapSpace space(100000, 8);
  std::map<size_t, size_t> taken;  // begin → bytes
  for (int i = 0; i < 20000; ++i) {
    const size_t bytes = 1 + random() % 3000;
    size_t begin = 0;
    if (random() % 2 == 0 && space.Take(bytes, &begin)) {
      const auto after = taken.lower_bound(begin);
      ASSERT_TRUE(after == taken.end() || begin + bytes <= after->first);
      ASSERT_TRUE(after == taken.begin() ||
                  std::prev(after)->first + std::prev(after)->second <= begin);
      ASSERT_LE(begin + bytes, space.limit());
      taken[begin] = bytes;
    } else if (!taken.empty()) {
      auto one = taken.lower_bound(random() % space.limit());
      one = one == taken.end() ? taken.begin() : one;
      ASSERT_TRUE(space.Give(one->first, one->second));
      taken.erase(one);
    }
  }
  for (const auto& [begin, bytes] : taken) {
    ASSERT_TRUE(space.Give(begin, bytes));
  }
  EXPECT_EQ(space.largest_free(), space.limit());
}

}  // namespace
}  // namespace trepak
