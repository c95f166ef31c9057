#include "ops/runtime/dymem/pool_map.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trepak {
namespace {

constexpr size_t kKilobyte = 1024;

TEST(PoolMapTest, BytesHaveAUnit) {
  EXPECT_EQ(DescribeBytes(0), "0 bytes");
  EXPECT_EQ(DescribeBytes(1023), "1023 bytes");
  EXPECT_EQ(DescribeBytes(1536), "1.5 KiB");
  EXPECT_EQ(DescribeBytes(size_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(DescribeBytes(size_t{5000} << 40), "5000.0 TiB");
}

TEST(PoolMapTest, NamesClassesAndTheLargest) {
  std::unique_ptr<MemoryPool> pool;
  const PoolOptions options{PoolKind::kGtbm, 100 * kKilobyte, 4 * kKilobyte};
  ASSERT_TRUE(MemoryPool::Make(options, &pool).ok());
  EXPECT_EQ(pool->Map(),
            "The pool of 100.0 KiB holds tensors of 0 bytes in 0 blocks (movable 0 bytes in 0, "
            "temporary 0 bytes in 0, reclaimed 0 bytes in 0) and 0 bytes of small ones.\n"
            "  gaps: 96.0 KiB in 1; kept back (beta): 4.0 KiB; scratch outside: 0 bytes\n"
            "  largest gaps: 96.0 KiB free at 0");
  void* first = nullptr;
  for (const auto& [bytes, mobility] :
       std::vector<std::pair<size_t, Mobility>>{{8192, Mobility::kMovable},
                                                {5000, Mobility::kMovable},
                                                {8192, Mobility::kTemporary},
                                                {16384, Mobility::kReclaimed},
                                                {4096, Mobility::kMovable},
                                                {6144, Mobility::kMovable}}) {
    void* const memory = pool->Allocate({bytes, mobility, 1}, Patience::kTry);
    ASSERT_NE(memory, nullptr);
    first = first == nullptr ? memory : first;
  }
  pool->Free(first);
  EXPECT_EQ(pool->Map(),
            "The pool of 100.0 KiB holds tensors of 39.0 KiB in 5 blocks (movable 15.0 KiB in 3, "
            "temporary 8.0 KiB in 1, reclaimed 16.0 KiB in 1) and 0 bytes of small ones.\n"
            "  gaps: 57.0 KiB in 2; kept back (beta): 4.0 KiB; scratch outside: 0 bytes\n"
            "  largest blocks: 16.0 KiB reclaimed at 102400, 8.0 KiB temporary at 94208, 6.0 KiB "
            "movable at 17408, 5.0 KiB movable at 8192\n"
            "  largest gaps: 49.0 KiB free at 23552, 8.0 KiB free at 0");
}

TEST(PoolMapTest, TellsWhatIsSmallAndOutside) {
  std::unique_ptr<MemoryPool> pool;
  ASSERT_TRUE(MemoryPool::Make({PoolKind::kBestFit, 16 * kKilobyte, 4 * kKilobyte}, &pool).ok());
  void* const small = pool->Allocate({100, Mobility::kMovable, 1}, Patience::kTry);
  void* const scratch = pool->Allocate({64 * kKilobyte, Mobility::kMovable, 1}, Patience::kScratch);
  const std::string map = pool->Map();
  EXPECT_NE(map.find("and " + DescribeBytes(pool->figures().small) + " of small ones."),
            std::string::npos)
      << map;
  EXPECT_NE(map.find("scratch outside: 64.0 KiB"), std::string::npos) << map;
  pool->Free(small);
  pool->Free(scratch);
  // At a shortage beta is committed.
  void* const most = pool->Allocate({16 * kKilobyte, Mobility::kMovable, 1}, Patience::kWait);
  ASSERT_NE(most, nullptr);
  EXPECT_NE(pool->Map().find("gaps: 0 bytes in 0; kept back (beta): 0 bytes"), std::string::npos)
      << pool->Map();
  pool->Free(most);
}

}  // namespace
}  // namespace trepak
