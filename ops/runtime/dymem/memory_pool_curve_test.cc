// What a pool tells of its past: curve, fragmentation, timeline.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/memory_pool.h"

namespace trepak {
namespace {

constexpr size_t kKilobyte = 1024;

std::unique_ptr<MemoryPool> Pool(PoolOptions options) {
  std::unique_ptr<MemoryPool> pool;
  EXPECT_EQ(MemoryPool::Make(options, &pool), OkStatus());
  return pool;
}

void* Take(MemoryPool* pool, size_t bytes) {
  return pool->Allocate({bytes, Mobility::kMovable, 1}, Patience::kTry);
}

std::pair<size_t, size_t> Peaks(const std::vector<MemoryPoint>& curve) {
  size_t live = 0, occupied = 0;
  for (const MemoryPoint& point : curve) {
    live = std::max(live, point.live);
    occupied = std::max(occupied, point.occupied);
  }
  return {live, occupied};
}

TEST(MemoryPoolCurveTest, TellsEachChange) {
  const auto pool = Pool({PoolKind::kBestFit, 64 * kKilobyte});
  EXPECT_TRUE(pool->curve().empty());
  void* const first = Take(pool.get(), 8 * kKilobyte);
  void* const second = Take(pool.get(), 16 * kKilobyte);
  pool->Free(first);
  pool->Free(second);
  std::vector<std::pair<size_t, size_t>> told;
  MemoryPoint::Time before{};
  for (const MemoryPoint& point : pool->curve()) {
    EXPECT_LE(before, point.time);
    before = point.time;
    told.emplace_back(point.live / kKilobyte, point.occupied / kKilobyte);
  }
  EXPECT_EQ(told, (std::vector<std::pair<size_t, size_t>>{{8, 8}, {24, 24}, {16, 16}, {0, 0}}));
}

TEST(MemoryPoolCurveTest, BeginsAnewWithWhatLives) {
  const auto pool = Pool({PoolKind::kBestFit, 64 * kKilobyte});
  void* const memory = Take(pool.get(), 8 * kKilobyte);
  pool->Free(Take(pool.get(), 16 * kKilobyte));
  pool->ResetPeaks();
  ASSERT_EQ(pool->curve().size(), 1U);
  EXPECT_EQ(pool->curve()[0].live, 8 * kKilobyte);
  pool->Free(memory);
  EXPECT_EQ(pool->curve().back().live, 0U);
}

TEST(MemoryPoolCurveTest, HasThePeaksOfManyThreads) {
  const auto pool = Pool({PoolKind::kGtbm, 1024 * kKilobyte});
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    while (!ends) {
      const auto curve = pool->curve();
      ASSERT_LE(curve.size(), MemoryCurve::kMostPoints);
      ASSERT_TRUE(std::is_sorted(curve.begin(), curve.end(),
                                 [](const auto& a, const auto& b) { return a.time < b.time; }));
    }
  });
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&pool, seed] {
      std::mt19937 random(seed);
      std::vector<void*> taken;
      for (int i = 0; i < 3000; ++i) {
        taken.push_back(Take(pool.get(), 1 + random() % 20000));
        if (taken.size() > 8) {
          std::swap(taken[random() % taken.size()], taken.back());
          pool->Free(taken.back());
          taken.pop_back();
        }
      }
      for (void* const memory : taken) {
        pool->Free(memory);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ends = true;
  reader.join();
  const PoolFigures figures = pool->figures();
  EXPECT_GT(figures.peak_live, 0U);
  EXPECT_EQ(Peaks(pool->curve()), std::make_pair(figures.peak_live, figures.peak_occupied));
}

TEST(MemoryPoolCurveTest, FragmentationIsOfEachRequestSinceTheLastReset) {
  const auto pool = Pool({PoolKind::kBestFit, 40 * kKilobyte});
  EXPECT_EQ(pool->figures().worst_fragmentation, 0);
  void* const first = Take(pool.get(), 8 * kKilobyte);
  void* const second = Take(pool.get(), 8 * kKilobyte);
  void* const third = Take(pool.get(), 8 * kKilobyte);
  EXPECT_EQ(pool->figures().mean_fragmentation, 0);
  pool->Free(second);
  pool->ResetPeaks();
  void* const fourth = Take(pool.get(), 12 * kKilobyte);  // of 24 KB free, 8 are of no use
  EXPECT_DOUBLE_EQ(pool->figures().worst_fragmentation, 1.0 / 3);
  void* const fifth = Take(pool.get(), 8 * kKilobyte);  // of 12 KB free, 4 are of no use
  EXPECT_DOUBLE_EQ(pool->figures().worst_fragmentation, 1.0 / 3);
  void* const sixth = Take(pool.get(), 4 * kKilobyte);  // all is of use
  EXPECT_DOUBLE_EQ(pool->figures().mean_fragmentation, 2.0 / 9);
  pool->ResetPeaks();
  EXPECT_EQ(pool->figures().worst_fragmentation, 0);
  EXPECT_EQ(pool->figures().mean_fragmentation, 0);
  for (void* const memory : {first, third, fourth, fifth, sixth}) {
    ASSERT_NE(memory, nullptr);
    pool->Free(memory);
  }
}

TEST(MemoryPoolCurveTest, TimelineShowsWhatCanBeSeen) {
  Timeline timeline;
  const std::string path = testing::TempDir() + "memory_pool_timeline.json";
  ASSERT_TRUE(timeline.Open(path, 0, "t", "{}", 0, 0, 10).ok());
  const auto pool = Pool({PoolKind::kBestFit, 2048 * kKilobyte, 0, false, &timeline});
  for (int i = 0; i < 100; ++i) {
    pool->Free(Take(pool.get(), 5 * kKilobyte));  // too little for a picture
  }
  void* const memory = Take(pool.get(), 64 * kKilobyte);
  ASSERT_TRUE(timeline.Close().ok());
  pool->Free(memory);
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), 'C'), 2) << text;
  EXPECT_NE(text.find("\"name\":\"Dymem: live bytes\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"name\":\"Dymem: occupied bytes\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"args\":{\"value\":65536}"), std::string::npos) << text;
}

}  // namespace
}  // namespace trepak
