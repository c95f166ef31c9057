#include "ops/runtime/dymem/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trepak {
namespace {

using testing::HasSubstr;

constexpr size_t kKilobyte = 1024;
constexpr size_t kMegabyte = size_t{1} << 20;

std::unique_ptr<MemoryPool> Pool(size_t limit, size_t beta = 0, PoolKind kind = PoolKind::kGtbm) {
  std::unique_ptr<MemoryPool> pool;
  EXPECT_EQ(MemoryPool::Make({kind, limit, beta}, &pool), OkStatus());
  return pool;
}

// Frees what it took.
class Taken {
 public:
  Taken(MemoryPool* pool, size_t bytes, Patience patience = Patience::kTry,
        Mobility mobility = Mobility::kMovable)
      : pool_(*pool), data_(static_cast<char*>(pool->Allocate({bytes, mobility, 1}, patience))) {}
  ~Taken() { Free(); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  void Free() { pool_.Free(std::exchange(data_, nullptr)); }
  char* data() const { return data_; }
  bool ok() const { return data_ != nullptr; }

 private:
  MemoryPool& pool_;
  char* data_;
};

// Has another thread release memory, as often as it is told to.
class FakeRelief : public PoolRelief {
 public:
  FakeRelief(int releases_left, std::function<void()> release)
      : releases_left_(releases_left), release_(std::move(release)) {}
  ~FakeRelief() override {
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  int64_t releases() const override { return releases_; }
  bool WaitForRelease(std::chrono::steady_clock::time_point, int64_t releases) override {
    ++asked;
    if (releases_left_-- <= 0) {
      return false;
    }
    threads_.emplace_back([this] {
      release_();
      ++releases_;
    });
    while (releases_ <= releases) {
      std::this_thread::yield();
    }
    return true;
  }

  int asked = 0;

 private:
  int releases_left_;
  const std::function<void()> release_;
  std::atomic<int64_t> releases_{0};
  std::vector<std::thread> threads_;
};

// Has nothing to release when it is asked first.
class LateRelief : public FakeRelief {
 public:
  using FakeRelief::FakeRelief;
  bool WaitForRelease(std::chrono::steady_clock::time_point deadline, int64_t releases) override {
    if (asked == 0) {
      ++asked;
      return false;
    }
    return FakeRelief::WaitForRelease(deadline, releases);
  }
};

TEST(MemoryPoolTest, LimitIsMoreThanBeta) {
  std::unique_ptr<MemoryPool> pool;
  const Status status = MemoryPool::Make({PoolKind::kGtbm, 1000, 1000}, &pool);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1000 bytes has no room beside beta, 1000"));
}

TEST(MemoryPoolTest, LimitHoldsWhateverIsAskedFor) {
  for (const PoolKind kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
    std::mt19937 random(1);
    const auto pool = Pool(kMegabyte, 100 * kKilobyte, kind);
    std::vector<void*> small, taken;
    for (int i = 0; i < 30; ++i) {
      small.push_back(pool->Allocate({1 + random() % 4095}, Patience::kTry));
    }
    int64_t refused = 0;
    for (int i = 0; i < 5000; ++i) {
      const size_t bytes = MemoryPool::kSmall + random() % 100000;
      const auto mobility = static_cast<Mobility>(random() % 3);
      void* const memory = pool->Allocate({bytes, mobility, 1 + i % 3}, Patience::kTry);
      const PoolFigures figures = pool->figures();
      ASSERT_LE(figures.occupied, 924 * kKilobyte) << i;
      if (memory != nullptr) {
        ASSERT_EQ(reinterpret_cast<uintptr_t>(memory) % MemoryPool::kAlignment, 0U);
        taken.push_back(memory);
      }
      refused += memory == nullptr ? 1 : 0;
      while (taken.size() > 20 + random() % 20) {
        std::swap(taken[random() % taken.size()], taken.back());
        pool->Free(taken.back());
        taken.pop_back();
      }
    }
    EXPECT_GT(refused, 100);
    taken.insert(taken.end(), small.begin(), small.end());
    for (void* const memory : taken) {
      pool->Free(memory);
    }
    EXPECT_EQ(pool->figures().live, 0U);
    EXPECT_EQ(pool->figures().occupied, 0U);
    EXPECT_EQ(pool->figures().failures, 0);
  }
}

TEST(MemoryPoolTest, SmallOnesTakeFromTheLimit) {
  const auto pool = Pool(64 * kKilobyte);
  {
    Taken small(pool.get(), 4000);
    ASSERT_TRUE(small.ok());
    EXPECT_GE(pool->figures().small, 4000U);
    EXPECT_EQ(pool->figures().live, pool->figures().small);
    EXPECT_FALSE(Taken(pool.get(), 64 * kKilobyte).ok());
    EXPECT_FALSE(Taken(pool.get(), 61 * kKilobyte).ok());
    EXPECT_TRUE(Taken(pool.get(), 59 * kKilobyte).ok());
  }
  EXPECT_TRUE(Taken(pool.get(), 64 * kKilobyte).ok());
}

TEST(MemoryPoolTest, HolesAreOfUseWhenSmallOnesHaveNoRoom) {
  const auto pool = Pool(24 * kKilobyte);
  Taken first(pool.get(), 8 * kKilobyte), second(pool.get(), 8 * kKilobyte);
  Taken third(pool.get(), 8 * kKilobyte);
  ASSERT_TRUE(third.ok());
  Taken small(pool.get(), 1000);
  EXPECT_TRUE(small.ok()) << "they are never refused";
  first.Free();
  Taken hole(pool.get(), 8 * kKilobyte);
  EXPECT_TRUE(hole.ok());
  third.Free();
  EXPECT_FALSE(Taken(pool.get(), 8 * kKilobyte).ok());
  EXPECT_TRUE(Taken(pool.get(), 7 * kKilobyte).ok());
}

TEST(MemoryPoolTest, BetaIsCommittedOnceAtTheFirstShortage) {
  const auto pool = Pool(64 * kKilobyte, 16 * kKilobyte);
  FakeRelief relief(0, nullptr);
  pool->set_relief(&relief);
  Taken most(pool.get(), 40 * kKilobyte);
  EXPECT_FALSE(Taken(pool.get(), 16 * kKilobyte, Patience::kTry).ok());
  EXPECT_TRUE(Taken(pool.get(), 16 * kKilobyte, Patience::kScratch).ok());
  EXPECT_EQ(pool->figures().shortages, 0);
  EXPECT_EQ(pool->figures().occupied, 40 * kKilobyte);
  EXPECT_TRUE(Taken(pool.get(), 16 * kKilobyte, Patience::kWait).ok());
  EXPECT_EQ(pool->figures().shortages, 1);
  EXPECT_EQ(relief.asked, 0) << "nobody waited";
  EXPECT_TRUE(Taken(pool.get(), 24 * kKilobyte, Patience::kTry).ok()) << "it stays";
  EXPECT_FALSE(Taken(pool.get(), 25 * kKilobyte, Patience::kTry).ok());
  EXPECT_EQ(pool->figures().shortages, 1);
  EXPECT_EQ(pool->figures().failures, 0);
  EXPECT_EQ(pool->figures().waits, 0);
}

std::unique_ptr<MemoryPool> PoolThatFindsItsLimit(size_t limit, size_t beta) {
  std::unique_ptr<MemoryPool> pool;
  EXPECT_EQ(MemoryPool::Make({PoolKind::kGtbm, limit, beta, true}, &pool), OkStatus());
  return pool;
}

TEST(MemoryPoolTest, FitLowersTheLimitToThePeakAndBeta) {
  const auto pool = PoolThatFindsItsLimit(kMegabyte, 16 * kKilobyte);
  {
    Taken small(pool.get(), 2000);
    Taken low(pool.get(), 100 * kKilobyte),
        high(pool.get(), 80 * kKilobyte, Patience::kTry, Mobility::kTemporary);
    Taken other(pool.get(), 40 * kKilobyte, Patience::kTry, Mobility::kReclaimed);
  }
  EXPECT_EQ(pool->figures().limit, kMegabyte);
  pool->ResetPeaks();
  Taken here(pool.get(), 60 * kKilobyte);
  pool->Fit();
  const size_t limit = pool->figures().limit;
  EXPECT_GT(limit, 236 * kKilobyte + 2000 - Placement::kGranularity) << "what is small counts";
  EXPECT_LE(limit, 236 * kKilobyte + 3000);
  EXPECT_FALSE(Taken(pool.get(), limit - 50 * kKilobyte).ok());
  EXPECT_TRUE(Taken(pool.get(), limit - 61 * kKilobyte).ok());
  EXPECT_EQ(pool->figures().shortages, 0);
  pool->Fit();
  EXPECT_EQ(pool->figures().limit, limit) << "once";
}

TEST(MemoryPoolTest, FitLeavesAGivenLimitAlone) {
  const auto pool = Pool(kMegabyte, 16 * kKilobyte);
  pool->Fit();
  EXPECT_EQ(pool->figures().limit, kMegabyte);
  EXPECT_TRUE(Taken(pool.get(), 1008 * kKilobyte).ok());
}

TEST(MemoryPoolTest, ShortagesRaiseALimitThatWasFoundUpToWhereItBegan) {
  const auto pool = PoolThatFindsItsLimit(kMegabyte, 0);
  { Taken all(pool.get(), 320 * kKilobyte); }
  pool->Fit();
  EXPECT_EQ(pool->figures().limit, 330 * kKilobyte) << "beta is a 32nd";
  Taken first(pool.get(), 320 * kKilobyte), second(pool.get(), 8 * kKilobyte);
  EXPECT_EQ(pool->figures().shortages, 0);
  Taken third(pool.get(), 8 * kKilobyte, Patience::kWait);
  EXPECT_EQ(pool->figures().limit, 340 * kKilobyte) << "another beta";
  Taken larger(pool.get(), 400 * kKilobyte, Patience::kWait);
  EXPECT_EQ(pool->figures().limit, 740 * kKilobyte) << "what it takes";
  EXPECT_TRUE(third.ok() && larger.ok());
  EXPECT_TRUE(Taken(pool.get(), 284 * kKilobyte, Patience::kWait).ok());
  EXPECT_EQ(pool->figures().limit, kMegabyte);
  EXPECT_EQ(pool->figures().shortages, 3);
  EXPECT_EQ(pool->figures().waits, 0);
  EXPECT_FALSE(Taken(pool.get(), 300 * kKilobyte, Patience::kWait).ok());
  EXPECT_EQ(pool->figures().shortages, 3);
}

TEST(MemoryPoolTest, ScratchIsTakenFromOutsideWhenThereIsNoRoom) {
  const auto pool = Pool(64 * kKilobyte);
  Taken all(pool.get(), 64 * kKilobyte, Patience::kScratch);
  EXPECT_EQ(pool->figures().outside, 0U) << "there was room";
  {
    Taken large(pool.get(), 100 * kKilobyte, Patience::kScratch);
    Taken least(pool.get(), MemoryPool::kSmall, Patience::kScratch);
    ASSERT_TRUE(large.ok() && least.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % MemoryPool::kAlignment, 0U);
    EXPECT_GE(pool->figures().outside, 100 * kKilobyte + MemoryPool::kSmall);
    EXPECT_EQ(pool->figures().live, 64 * kKilobyte);
  }
  EXPECT_EQ(pool->figures().outside, 0U);
  EXPECT_GE(pool->figures().peak_outside, 104 * kKilobyte);
  pool->ResetPeaks();
  EXPECT_EQ(pool->figures().peak_outside, 0U);
}

TEST(MemoryPoolTest, WaitsUntilEnoughWasReleased) {
  const auto pool = Pool(64 * kKilobyte);
  std::vector<std::unique_ptr<Taken>> taken;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(std::make_unique<Taken>(pool.get(), 16 * kKilobyte));
  }
  FakeRelief relief(10, [&] { taken.pop_back(); });
  pool->set_relief(&relief);
  Taken waited(pool.get(), 40 * kKilobyte, Patience::kWait);
  EXPECT_TRUE(waited.ok());
  EXPECT_EQ(relief.asked, 3);
  EXPECT_EQ(pool->figures().waits, 3);
  EXPECT_GT(pool->figures().waited_seconds, 0);
  EXPECT_EQ(pool->figures().failures, 0);
  EXPECT_FALSE(Taken(pool.get(), 16 * kKilobyte, Patience::kTry).ok());
  EXPECT_TRUE(Taken(pool.get(), 16 * kKilobyte, Patience::kScratch).ok());
  EXPECT_EQ(relief.asked, 3) << "the others have no patience";
}

TEST(MemoryPoolTest, FailureIsCountedWhenNoReleaseComes) {
  const auto pool = Pool(64 * kKilobyte);
  FakeRelief relief(0, nullptr);
  pool->set_relief(&relief);
  Taken most(pool.get(), 40 * kKilobyte);
  EXPECT_FALSE(Taken(pool.get(), 40 * kKilobyte, Patience::kWait).ok());  // after 1 s
  EXPECT_GE(relief.asked, 2) << "before that second and after it";
  EXPECT_EQ(pool->figures().failures, 1);
  EXPECT_EQ(pool->figures().waits, 1);
  EXPECT_GE(pool->figures().waited_seconds, 0.9);
}

TEST(MemoryPoolTest, WhatIsFreedWithoutAReleaseIsWaitedFor) {
  const auto pool = Pool(64 * kKilobyte);
  Taken most(pool.get(), 40 * kKilobyte);
  std::thread other([&] { most.Free(); });
  EXPECT_TRUE(Taken(pool.get(), 40 * kKilobyte, Patience::kWait).ok());
  other.join();
  EXPECT_EQ(pool->figures().failures, 0);
}

TEST(MemoryPoolTest, WhatMayLeaveLaterIsWaitedFor) {
  const auto pool = Pool(64 * kKilobyte);
  Taken most(pool.get(), 40 * kKilobyte);
  LateRelief relief(1, [&] { most.Free(); });
  pool->set_relief(&relief);
  EXPECT_TRUE(Taken(pool.get(), 40 * kKilobyte, Patience::kWait).ok());  // after 1 s
  EXPECT_EQ(relief.asked, 2);
  EXPECT_EQ(pool->figures().failures, 0);
}

TEST(MemoryPoolTest, ThreadThatComputesLongIsWaitedFor) {
  const auto pool = Pool(64 * kKilobyte);
  Taken most(pool.get(), 40 * kKilobyte);
  std::thread other([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
    while (std::chrono::steady_clock::now() < end) {
    }
    most.Free();
  });
  EXPECT_TRUE(Taken(pool.get(), 40 * kKilobyte, Patience::kWait).ok());
  other.join();
  EXPECT_EQ(pool->figures().failures, 0);
}

TEST(MemoryPoolTest, SmallOneThatIsFreedMakesRoom) {
  const auto pool = Pool(64 * kKilobyte);
  Taken small(pool.get(), 4000);
  FakeRelief relief(1, [&] { small.Free(); });
  pool->set_relief(&relief);
  EXPECT_TRUE(Taken(pool.get(), 64 * kKilobyte, Patience::kWait).ok());
  Taken again(pool.get(), 4000);
  std::thread other([&] { again.Free(); });
  EXPECT_TRUE(Taken(pool.get(), 64 * kKilobyte, Patience::kWait).ok());  // after 1 s or at once
  other.join();
  EXPECT_EQ(pool->figures().failures, 0);
}

TEST(MemoryPoolTest, PeaksAreOfTheSumSinceTheLastReset) {
  const auto pool = Pool(64 * kKilobyte);
  Taken placed(pool.get(), 40 * kKilobyte);
  { Taken small(pool.get(), 4000); }
  EXPECT_GE(pool->figures().peak_live, 40 * kKilobyte + 4000) << "while the small one lived";
  EXPECT_GE(pool->figures().peak_occupied, 40 * kKilobyte + 4000);
  placed.Free();
  const size_t peak = pool->figures().peak_live;
  Taken small(pool.get(), 4000);
  EXPECT_EQ(pool->figures().peak_live, peak) << "the two did not live at once";
  pool->ResetPeaks();
  EXPECT_EQ(pool->figures().peak_live, pool->figures().small);
  EXPECT_EQ(pool->figures().peak_occupied, pool->figures().small);
}

TEST(MemoryPoolTest, OnlyWhatIsSmallGoesBeyondTheLimit) {
  const auto pool = Pool(64 * kKilobyte);
  const Taken all(pool.get(), 64 * kKilobyte);
  { const Taken small(pool.get(), 4000); }
  const PoolFigures figures = pool->figures();
  EXPECT_EQ(figures.small, 0U);
  EXPECT_GE(figures.peak_small, 4000U);
  EXPECT_EQ(figures.peak_occupied, figures.limit + figures.peak_small);
}

TEST(MemoryPoolTest, FragmentationIsOfTheLastRequest) {
  const auto pool = Pool(40 * kKilobyte, 0, PoolKind::kBestFit);
  EXPECT_EQ(pool->figures().fragmentation, 0);
  Taken first(pool.get(), 8 * kKilobyte), second(pool.get(), 8 * kKilobyte);
  Taken third(pool.get(), 8 * kKilobyte), fourth(pool.get(), 16 * kKilobyte);
  EXPECT_EQ(pool->figures().fragmentation, 0) << "nothing is free";
  first.Free();
  third.Free();
  EXPECT_EQ(pool->figures().fragmentation, 1) << "two holes of 8 KB, none of 16 KB";
  Taken fifth(pool.get(), 4 * kKilobyte);
  EXPECT_EQ(pool->figures().fragmentation, 0);
}

TEST(MemoryPoolTest, FreeingTwiceEndsTheProcess) {
  const auto pool = Pool(64 * kKilobyte);
  void* const memory = pool->Allocate({8192, Mobility::kMovable, 1}, Patience::kTry);
  pool->Free(memory);
  pool->Free(nullptr);
  EXPECT_EXIT(pool->Free(memory), testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace trepak
