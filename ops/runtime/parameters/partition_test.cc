#include "ops/runtime/parameters/partition.h"

#include <gtest/gtest.h>

#include <map>

namespace trepak {
namespace {

PartitionOptions Servers(uint32_t count) {
  PartitionOptions options;
  for (uint32_t rank = 0; rank < count; ++rank) options.servers.push_back(rank);
  return options;
}

TEST(PartitionTest, CoversEveryElementOnce) {
  for (uint32_t servers : {1, 2, 3, 8}) {
    for (int64_t elements : {0, 1, 7, 511, 512, 4096, 4097, 1'000'003}) {
      for (int64_t slice : {0, 1, 1000, 1 << 20}) {
        PartitionOptions options = Servers(servers);
        options.slice_elements = slice == 1 && elements > 5000 ? 100 : slice;
        int64_t next = 0;
        for (const Slice& one : Partition(5, elements, options)) {
          EXPECT_EQ(one.offset, next);
          EXPECT_LT(one.server, servers);
          if (options.slice_elements > 0) {
            EXPECT_LE(one.elements, options.slice_elements);
          }
          next += one.elements;
        }
        EXPECT_EQ(next, elements);
      }
    }
  }
}

TEST(PartitionTest, ServersHaveEqualShares) {
  std::map<uint32_t, int64_t> shares;
  for (const Slice& slice : Partition(0, 1'000'003, Servers(8)))
    shares[slice.server] += slice.elements;
  ASSERT_EQ(shares.size(), 8u);
  for (const auto& [server, share] : shares) EXPECT_NEAR(share, 125'000, 1) << server;
}

TEST(PartitionTest, PaperSlicesOfVgg19) {
  // Section V.D: 1,024K elements; fc6 of VGG-19 has 102,760,448 weights, 8 servers.
  EXPECT_EQ(Partition(0, 102'760'448, Servers(8)).size(), 8u * 13);
}

TEST(PartitionTest, SmallVariablesGoRoundRobin) {
  for (uint32_t key = 0; key < 10; ++key) {
    const auto slices = Partition(key, 64, Servers(4));
    ASSERT_EQ(slices.size(), 1u);
    EXPECT_EQ(slices[0].server, key % 4);
  }
}

TEST(PartitionTest, WholeVariablesGoRoundRobin) {
  PartitionOptions options = Servers(3);
  options.split = false;
  options.slice_elements = 0;
  const auto slices = Partition(4, 1'000'000'000, options);
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].server, 1u);
}

TEST(PartitionTest, OnlyTheChosenRanksServe) {
  PartitionOptions options;
  options.servers = {2, 5};
  for (const Slice& slice : Partition(0, 100'000, options)) {
    EXPECT_TRUE(slice.server == 2 || slice.server == 5);
  }
}

}  // namespace
}  // namespace trepak
