#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/swap_engine.h"
#include "ops/runtime/dymem/swap_testing.h"

namespace trepak {
namespace {

TEST(SwapEngineStressTest, ManyThreadsSwapAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kTensors = 250;  // each
  SwapOptions options;
  options.checksums = true;
  SwapEngine engine(TestMemory(size_t{10} << 20), options);  // which is full at times
  std::atomic<int> dropped{0};
  const auto swap = [&](int id) {
    std::minstd_rand random(id + 1);
    struct Live {
      int64_t handle;
      std::unique_ptr<TestTensor> tensor;
    };
    std::vector<Live> live;
    const auto end_one = [&] {
      const size_t which = random() % live.size();
      std::swap(live[which], live.back());
      if (random() % 8 == 0) {
        engine.Drop(live.back().handle);
        ++dropped;
        // Whether the stream has released it is not told: wait for it, or for nothing.
        EXPECT_EQ(engine.SynchronizeOffloads(Soon()), OkStatus());
        EXPECT_EQ(engine.SynchronizeFetches(Soon()), OkStatus());
      } else {
        std::vector<char> bytes;
        EXPECT_EQ(FetchNow(engine, live.back().handle, &bytes), OkStatus());
        EXPECT_TRUE(live.back().tensor->Equals(bytes));
      }
      EXPECT_EQ(live.back().tensor->released, 1);
      live.pop_back();
    };
    for (int i = 0; i < kTensors; ++i) {
      // As many small ones as large ones, from 1 byte to 1 MB.
      const size_t bytes = 1 + random() % (size_t{1} << (random() % 21));
      auto tensor = std::make_unique<TestTensor>(bytes, id * kTensors + i);
      const int64_t handle = engine.Offload(tensor->Source(std::to_string(i)));
      live.push_back({handle, std::move(tensor)});
      while (live.size() > 1 + random() % 30) {
        end_one();
      }
      if (random() % 10 == 0) {
        (void)engine.WaitForRelease(Soon());
      }
    }
    while (!live.empty()) {
      end_one();
    }
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back(swap, id);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const SwapCounters counters = engine.counters();
  EXPECT_EQ(counters.fetched_tensors + dropped, kThreads * kTensors);
  EXPECT_EQ(engine.tier().used(), 0U);
  EXPECT_EQ(counters.waiting_tensors, 0);
  EXPECT_EQ(counters.waiting_bytes, 0);
  EXPECT_GT(counters.offloaded_tensors, 0);
  EXPECT_EQ(engine.releases(), kThreads * kTensors);
}

}  // namespace
}  // namespace trepak
