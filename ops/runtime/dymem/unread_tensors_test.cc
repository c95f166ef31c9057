#include "ops/runtime/dymem/unread_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace trepak {
namespace {

using testing::ElementsAre;

TEST(UnreadTensorsTest, WhatIsNeededLastLeavesFirst) {
  UnreadTensors unread;
  std::vector<int> left;
  for (int tensor = 0; tensor < 3; ++tensor) {
    unread.Add([&left, tensor] {
      left.push_back(tensor);
      return true;
    });
  }
  while (unread.EvictLast()) {
  }
  EXPECT_THAT(left, ElementsAre(2, 1, 0));
  EXPECT_EQ(unread.evicted(), 3);
}

TEST(UnreadTensorsTest, WhatWasReadStays) {
  UnreadTensors unread;
  bool left = false;
  unread.Add([&left] { return left = true; });
  const int64_t removed = unread.Add([] { return true; });
  unread.Add([] { return false; });  // somebody reads it just then
  unread.Remove(removed);
  unread.Remove(removed);
  EXPECT_TRUE(unread.EvictLast());
  EXPECT_TRUE(left);
  EXPECT_FALSE(unread.EvictLast());
  EXPECT_EQ(unread.evicted(), 1);
}

TEST(UnreadTensorsTest, WhatStayedLeavesBeforeWhatWasPrefetchedTheFirstOfItFirst) {
  UnreadTensors unread;
  std::vector<int> left;
  const auto leave = [&left](int tensor) {
    return [&left, tensor] {
      left.push_back(tensor);
      return true;
    };
  };
  unread.Add(leave(0));
  const int64_t first = unread.AddKept(leave(1));
  unread.Add(leave(2));
  const int64_t read = unread.AddKept(leave(3));
  unread.AddKept(leave(4));
  EXPECT_GT(first, read);
  EXPECT_GT(read, 0);
  unread.Remove(read);
  while (unread.EvictLast()) {
  }
  EXPECT_THAT(left, ElementsAre(1, 4, 2, 0));
  EXPECT_EQ(unread.evicted(), 4);
}

TEST(UnreadTensorsTest, EachLeavesOnceWhoeverAsks) {
  constexpr int kTensors = 1000;
  UnreadTensors unread;
  std::vector<std::atomic<int>> left(kTensors);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (int tensor = thread; tensor < kTensors; tensor += 2) {
        const auto leave = [&left, tensor] { return ++left[tensor] > 0; };
        tensor % 3 == 0 ? unread.AddKept(leave) : unread.Add(leave);
        unread.EvictLast();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_FALSE(unread.EvictLast());
  EXPECT_EQ(unread.evicted(), kTensors);
  for (const std::atomic<int>& times : left) {
    ASSERT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace trepak
