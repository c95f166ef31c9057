#include "ops/runtime/dymem/swap_tier.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/dymem/swap_testing.h"
#include "ops/runtime/net/full_disk.h"
#include "ops/runtime/net/resident_memory.h"

namespace trepak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kMegabyte = size_t{1} << 20;

std::string Folder() { return testing::TempDir(); }

std::unique_ptr<SwapTier> TestFile(size_t limit) {
  std::unique_ptr<SwapTier> tier;
  EXPECT_EQ(MakeFileTier(Folder(), limit, &tier), OkStatus());
  return tier;
}

void ExpectLies(SwapTier& tier, const SwapTier::Slot& slot, const std::vector<char>& expected) {
  std::vector<char> read(expected.size());
  ASSERT_EQ(tier.Read(slot, read.data(), read.size()), OkStatus());
  EXPECT_TRUE(read == expected) << expected.size() << " bytes at " << slot.begin;
}

// What both kinds promise.
class SwapTierTest : public testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<SwapTier> Make(size_t limit) {
    return GetParam() ? TestFile(limit) : TestMemory(limit);
  }
};

TEST_P(SwapTierTest, AnySizeComesBackBitForBit) {
  const auto tier = Make(128 * kMegabyte);
  const std::vector<size_t> sizes = {0,
                                     1,
                                     63,
                                     64,
                                     4095,
                                     4096,
                                     4097,
                                     kMegabyte,
                                     2 * kMegabyte,
                                     2 * kMegabyte + 1,
                                     1000003,
                                     17 * kMegabyte + 5};
  std::vector<SwapTier::Slot> slots(sizes.size());
  for (const int round : {0, 1}) {  // the second lies where the first did
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<char> bytes = SwapBytes(sizes[i], round);
      ASSERT_EQ(tier->Take(sizes[i], &slots[i]), OkStatus());
      ASSERT_EQ(tier->Write(slots[i], bytes.data(), bytes.size()), OkStatus());
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      ExpectLies(*tier, slots[i], SwapBytes(sizes[i], round));
      ASSERT_EQ(tier->Give(slots[i]), OkStatus());
    }
  }
  EXPECT_EQ(tier->used(), 0U);
  EXPECT_GE(tier->peak(), 22 * kMegabyte);
  EXPECT_EQ(tier->held(), tier->peak()) << "the second round used what the first had left";
}

TEST_P(SwapTierTest, FullOneSaysWhatItHasAndTakesAgainAfterAGive) {
  const auto tier = Make(kMegabyte);
  SwapTier::Slot first;
  SwapTier::Slot second;
  ASSERT_EQ(tier->Take(kMegabyte / 4 * 3, &first), OkStatus());
  const Status status = tier->Take(kMegabyte / 2, &second);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("for 524288 bytes"), HasSubstr("786432 of 1048576"),
                    HasSubstr("piece has 262144"), HasSubstr("raise its limit")));
  EXPECT_EQ(tier->used(), kMegabyte / 4 * 3);
  ASSERT_EQ(tier->Give(first), OkStatus());
  EXPECT_EQ(tier->Give(first).code(), StatusCode::kInternal);
  ASSERT_EQ(tier->Take(kMegabyte, &second), OkStatus());
  EXPECT_EQ(tier->limit(), kMegabyte);
  EXPECT_EQ(tier->peak(), kMegabyte);
}

TEST_P(SwapTierTest, ManyThreadsKeepTheirOwn) {
  const auto tier = Make(64 * kMegabyte);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&tier, id] {
      std::minstd_rand random(id + 1);
      for (int i = 0; i < 30; ++i) {
        const std::vector<char> bytes = SwapBytes(random() % 100000, id * 1000 + i);
        SwapTier::Slot slot;
        ASSERT_EQ(tier->Take(bytes.size(), &slot), OkStatus());
        ASSERT_EQ(tier->Write(slot, bytes.data(), bytes.size()), OkStatus());
        ExpectLies(*tier, slot, bytes);
        ASSERT_EQ(tier->Give(slot), OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(tier->used(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SwapTierTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "File" : "Memory"; });

TEST(MemoryTierTest, OnlyWhatWasTouchedIsMemory) {
  const int64_t before = Resident("VmRSS");
  const auto tier = TestMemory(1000 * kMegabyte);
  const std::vector<char> bytes(20 * kMegabyte, 'x');
  for (int step = 0; step < 10; ++step) {
    SwapTier::Slot slot;
    ASSERT_EQ(tier->Take(bytes.size(), &slot), OkStatus());
    ASSERT_EQ(tier->Write(slot, bytes.data(), bytes.size()), OkStatus());
    ASSERT_EQ(tier->Give(slot), OkStatus());
  }
  EXPECT_EQ(tier->held(), bytes.size());
  if (kMemoryIsOurs) {
    EXPECT_LT(Resident("VmRSS") - before, 50 * static_cast<int64_t>(kMegabyte));
  }
}

TEST(MemoryTierTest, MoreThanThereAreAddressesIsAnError) {
  std::unique_ptr<SwapTier> tier;
  const Status status = MakeMemoryTier(SwapTier::kNoLimit, &tier);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(std::to_string(SwapTier::kNoLimit)), HasSubstr("lower that limit")));
}

TEST(FileTierTest, FolderThatCannotBeUsedIsNamed) {
  std::unique_ptr<SwapTier> tier;
  for (const std::string folder : {"/nowhere/at all", "/proc"}) {  // not there; not writable
    const Status status = MakeFileTier(folder, kMegabyte, &tier);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'" + folder + "'"), HasSubstr("can be written to")));
  }
  EXPECT_EQ(tier, nullptr);
}

TEST(FileTierTest, LeavesNothingInItsFolder) {
  const std::string folder = Folder() + "/swap_tier_test";
  std::filesystem::create_directory(folder);
  std::unique_ptr<SwapTier> tier;
  ASSERT_EQ(MakeFileTier(folder, SwapTier::kNoLimit, &tier), OkStatus());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(std::filesystem::remove(folder));
}

TEST(FileTierTest, FullDiskIsAnErrorThatNamesTheFolder) {
  const auto tier = TestFile(SwapTier::kNoLimit);
  const std::vector<char> bytes = SwapBytes(kMegabyte, 1);
  SwapTier::Slot fits;
  SwapTier::Slot does_not;
  ASSERT_EQ(tier->Take(bytes.size(), &fits), OkStatus());
  ASSERT_EQ(tier->Take(bytes.size(), &does_not), OkStatus());
  Status status;
  {
    FullDisk disk(kMegabyte + kMegabyte / 2);  // writes a part of the second
    ASSERT_EQ(tier->Write(fits, bytes.data(), bytes.size()), OkStatus());
    status = tier->Write(does_not, bytes.data(), bytes.size());
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'" + Folder() + "'"), HasSubstr("524288 bytes"),
                    HasSubstr("free disk there")));
  ExpectLies(*tier, fits, bytes);
  ASSERT_EQ(tier->Write(does_not, bytes.data(), bytes.size()), OkStatus()) << "disk was freed";
  ExpectLies(*tier, does_not, bytes);
}

// How much of the only unnamed file that this process has in that folder is in the kernel's cache.
size_t CachedBytes(size_t bytes) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own, for one
    const std::string path = std::filesystem::read_symlink(entry.path(), gone).string();
    if (path.find("(deleted)") == std::string::npos) {
      continue;
    }
    const int file = std::stoi(entry.path().filename().string());
    struct stat about = {};
    if (fstat(file, &about) != 0 || static_cast<size_t>(about.st_size) != bytes) {
      continue;
    }
    void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    EXPECT_NE(memory, MAP_FAILED);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> is_there((bytes + page - 1) / page);
    EXPECT_EQ(mincore(memory, bytes, is_there.data()), 0);
    munmap(memory, bytes);
    return page * static_cast<size_t>(std::count_if(is_there.begin(), is_there.end(),
                                                    [](unsigned char one) { return one & 1; }));
  }
  ADD_FAILURE() << "there is no file of " << bytes << " bytes";
  return 0;
}

TEST(FileTierTest, KernelsCacheDoesNotStandInForMemory) {
  struct statfs about = {};
  ASSERT_EQ(statfs(Folder().c_str(), &about), 0);
  constexpr auto kTmpfs = 0x01021994;
  if (about.f_type == kTmpfs) {
    GTEST_SKIP() << Folder() << " is in memory itself; let TEST_TMPDIR name a folder on disk";
  }
  const auto tier = TestFile(SwapTier::kNoLimit);
  const std::vector<char> bytes = SwapBytes(20 * kMegabyte + 12345, 3);
  SwapTier::Slot slot;
  ASSERT_EQ(tier->Take(bytes.size(), &slot), OkStatus());
  ASSERT_EQ(tier->Write(slot, bytes.data(), bytes.size()), OkStatus());
  EXPECT_LE(CachedBytes(bytes.size()), kMegabyte) << "after a write";
  ExpectLies(*tier, slot, bytes);
  EXPECT_LE(CachedBytes(bytes.size()), kMegabyte) << "after a read";
}

}  // namespace
}  // namespace trepak
