#include "ops/runtime/dymem/wait_clock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace trepak {
namespace {

using std::chrono::milliseconds;

double SecondsSince(WaitClock::Clock::time_point begin) {
  return std::chrono::duration<double>(WaitClock::Clock::now() - begin).count();
}

TEST(WaitClockTest, WhoWaitsAtTheSameTimeCountsOnce) {
  WaitClock clock;
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(clock.seconds(), 0);
  const auto begin = WaitClock::Clock::now();
  auto first = clock.Wait();
  const auto begun = WaitClock::Clock::now();
  auto second = clock.Wait();
  std::this_thread::sleep_for(milliseconds(20));
  first = nullptr;
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(clock.seconds(), 0.04);  // while one still waits
  const double least = SecondsSince(begun);
  second = nullptr;
  const double waited = clock.seconds();
  EXPECT_GE(waited, least);
  EXPECT_LE(waited, SecondsSince(begin));
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(clock.seconds(), waited);
}

TEST(WaitClockTest, ManyThreadsWaitNoLongerThanTheyRun) {
  WaitClock clock;
  const auto begin = WaitClock::Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int wait = 0; wait < 100; ++wait) {
        const auto waiting = clock.Wait();
        EXPECT_GE(clock.seconds(), 0);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const double waited = clock.seconds();
  EXPECT_GT(waited, 0);
  EXPECT_LE(waited, SecondsSince(begin));
  EXPECT_EQ(clock.seconds(), waited);  // nobody waits any more
}

}  // namespace
}  // namespace trepak
