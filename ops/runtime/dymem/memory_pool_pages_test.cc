#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/memory_pool.h"
#include "ops/runtime/dymem/swap_testing.h"

namespace trepak {
namespace {

constexpr size_t kKilobyte = 1024;
constexpr size_t kMegabyte = size_t{1} << 20;

std::unique_ptr<MemoryPool> Pool(size_t limit, size_t beta = 0) {
  std::unique_ptr<MemoryPool> pool;
  EXPECT_EQ(MemoryPool::Make({PoolKind::kGtbm, limit, beta}, &pool), OkStatus());
  return pool;
}

// Takes all that the limit leaves, and writes to it.
std::vector<char*> Fill(MemoryPool* pool, size_t bytes, Mobility mobility) {
  std::vector<char*> taken;
  while (void* const memory = pool->Allocate({bytes, mobility, 1}, Patience::kTry)) {
    taken.push_back(static_cast<char*>(memory));
    std::memset(memory, 1, bytes);
  }
  return taken;
}

void FreeAll(MemoryPool* pool, const std::vector<char*>& taken) {
  for (char* const memory : taken) {
    pool->Free(memory);
  }
}

size_t ResidentBytes(char* from, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(from, bytes, pages.data()), 0);
  return page * std::count_if(pages.begin(), pages.end(), [](int flags) { return flags & 1; });
}

constexpr Mobility kMobilities[] = {Mobility::kMovable, Mobility::kReclaimed, Mobility::kTemporary,
                                    Mobility::kReclaimed};

TEST(MemoryPoolPagesTest, LimitHoldsForWhatIsInMemory) {
  constexpr size_t kLimit = 16 * kMegabyte;
  const auto pool = Pool(kLimit);
  char* const base = static_cast<char*>(pool->Allocate({kMegabyte}, Patience::kTry));  // lowest
  pool->Free(base);
  for (int round = 0; round < 3; ++round) {
    for (const Mobility mobility : kMobilities) {
      const std::vector<char*> taken = Fill(pool.get(), 100 * kKilobyte, mobility);
      const size_t resident = ResidentBytes(base, 2 * kLimit);
      EXPECT_LE(resident, kLimit + 2 * kMegabyte);
      EXPECT_GE(resident, taken.size() * 100 * kKilobyte);
      FreeAll(pool.get(), taken);
    }
  }
}

TEST(MemoryPoolPagesTest, LimitHoldsWhileRegionsShareTheMemory) {
  constexpr size_t kLimit = 16 * kMegabyte;
  const auto pool = Pool(kLimit);
  char* const base = static_cast<char*>(pool->Allocate({kMegabyte}, Patience::kTry));
  pool->Free(base);
  std::mt19937 random(1);
  std::vector<std::pair<char*, size_t>> taken;
  for (int i = 0; i < 3000; ++i) {
    // Each mobility has its time.
    const auto mobility = static_cast<Mobility>(random() % 5 == 0 ? random() % 3 : i / 100 % 3);
    const size_t bytes = MemoryPool::kSmall + random() % kMegabyte;
    char* const memory = static_cast<char*>(pool->Allocate({bytes, mobility, 1}, Patience::kTry));
    if (memory != nullptr) {
      std::memset(memory, i, bytes);
      memory[bytes - 1] = memory[0];
      taken.emplace_back(memory, bytes);
    }
    while (taken.size() > 5 + random() % 25 || (memory == nullptr && taken.size() > 10)) {
      std::swap(taken[random() % taken.size()], taken.back());
      const auto [freed, size] = taken.back();
      EXPECT_TRUE(freed[0] == freed[size / 2] && freed[0] == freed[size - 1]);
      pool->Free(freed);
      taken.pop_back();
    }
    if (i % 50 == 0) {
      ASSERT_LE(ResidentBytes(base, 2 * kLimit), kLimit + 2 * kMegabyte) << i;
    }
  }
}

TEST(MemoryPoolPagesTest, WhatIsBehindItsAddressesIsLeftAlone) {
  // Linux gives addresses from above: of two large pieces the second lies right below the first.
  constexpr size_t kNeighbour = 64 * kMegabyte;
  constexpr size_t kSeen = kMegabyte;
  void* const neighbour = mmap(nullptr, kNeighbour, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(neighbour, MAP_FAILED);
  std::memset(neighbour, 1, kSeen);
  const auto pool = Pool(4 * kMegabyte + 4096);  // no multiple of what is given back
  for (const Mobility mobility : kMobilities) {
    FreeAll(pool.get(), Fill(pool.get(), 4096, mobility));
  }
  const std::vector<char> same(kSeen, 1);
  EXPECT_EQ(std::memcmp(neighbour, same.data(), kSeen), 0);
  (void)munmap(neighbour, kNeighbour);
}

TEST(MemoryPoolPagesTest, ManyThreadsTakeAndFree) {
  constexpr size_t kLimit = 3 * kMegabyte;
  const auto pool = Pool(kLimit, kMegabyte);
  // So that a thread alone is short of memory, too: each one's first request has no room.
  void* const most = pool->Allocate({kLimit - kMegabyte - 64 * kKilobyte}, Patience::kTry);
  std::atomic<int> refused{0};
  const auto use = [&](int id) {
    std::minstd_rand random(id + 1);
    struct Live {
      char* memory;
      std::vector<char> bytes;
    };
    std::vector<Live> live;
    const auto end_one = [&] {
      std::swap(live[random() % live.size()], live.back());
      EXPECT_EQ(std::memcmp(live.back().memory, live.back().bytes.data(), live.back().bytes.size()),
                0);
      pool->Free(live.back().memory);
      live.pop_back();
    };
    for (int i = 0; i < 500; ++i) {
      const size_t bytes =
          i == 0 ? 128 * kKilobyte : 1 + random() % (size_t{1} << (8 + random() % 12));
      // Who waits has nothing, so that others go on.
      const Patience patience = live.empty()        ? Patience::kWait
                                : random() % 4 == 0 ? Patience::kScratch
                                                    : Patience::kTry;
      const Placement::Request request{bytes, static_cast<Mobility>(random() % 3),
                                       static_cast<int>(1 + random() % 4)};
      void* given = pool->Allocate(request, patience);
      while (given == nullptr && patience == Patience::kWait) {
        given = pool->Allocate(request, patience);  // the others have stood still for long
      }
      char* const memory = static_cast<char*>(given);
      if (memory == nullptr) {
        EXPECT_EQ(patience, Patience::kTry);
        ++refused;
      } else {
        live.push_back({memory, SwapBytes(bytes, id * 1000 + i)});
        std::memcpy(memory, live.back().bytes.data(), bytes);
      }
      while (!live.empty() && live.size() > random() % 20) {
        end_one();
      }
      const PoolFigures figures = pool->figures();
      EXPECT_LE(figures.occupied - figures.small, kLimit);
      EXPECT_LE(figures.live, figures.occupied);
    }
    while (!live.empty()) {
      end_one();
    }
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < 8; ++id) {
    threads.emplace_back(use, id);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  pool->Free(most);
  EXPECT_GT(refused, 0);
  const PoolFigures figures = pool->figures();
  EXPECT_EQ(figures.live, 0U);
  EXPECT_EQ(figures.occupied, 0U);
  EXPECT_EQ(figures.small, 0U);
  EXPECT_EQ(figures.outside, 0U);
  EXPECT_EQ(figures.shortages, 1);
  EXPECT_GT(figures.peak_outside, 0U);
  EXPECT_THAT(pool->Map(), testing::HasSubstr("holds tensors of 0 bytes in 0 blocks"));
  EXPECT_THAT(pool->Map(), testing::HasSubstr("gaps: 3.0 MiB in 1;"));
}

}  // namespace
}  // namespace trepak
