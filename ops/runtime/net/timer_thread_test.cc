#include "ops/runtime/net/timer_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "ops/runtime/net/undisturbed.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using Clock = TimerThread::Clock;

TEST(TimerThreadTest, RunsInOrderOfTimeThenOfArrival) {
  TimerThread timer;
  std::vector<int> seen;  // Written by the timer's thread, read after `last`.
  std::promise<void> last;
  std::promise<void> all_wait;  // before it runs any, however late this thread comes
  timer.RunAt({}, [&] { all_wait.get_future().wait(); });
  const Clock::time_point soon = Clock::now() + milliseconds(30);
  timer.RunAt(soon + milliseconds(10), [&] {
    seen.push_back(4);
    last.set_value();
  });
  for (int i = 1; i <= 3; ++i) {
    timer.RunAt(soon, [&seen, i] { seen.push_back(i); });
  }
  timer.RunAt(soon - milliseconds(35), [&] { seen.push_back(0); });  // is past
  all_wait.set_value();
  last.get_future().wait();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(TimerThreadTest, NeverRunsEarlyAndRarelyLate) {
  TimerThread timer;
  const double median = Undisturbed(2.0, [&] {
    std::vector<double> late_ms;
    std::promise<void> last;
    const Clock::time_point begin = Clock::now();
    constexpr int kCallbacks = 50;
    for (int i = 1; i <= kCallbacks; ++i) {
      const Clock::time_point when = begin + milliseconds(2 * i);
      timer.RunAt(when, [&, when, i] {
        late_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - when).count());
        if (i == kCallbacks) last.set_value();
      });
    }
    last.get_future().wait();
    std::sort(late_ms.begin(), late_ms.end());
    EXPECT_GE(late_ms.front(), 0);
    return late_ms[kCallbacks / 2];
  });
  EXPECT_LT(median, 2.0) << "half of the callbacks are over 2 ms late";
}

TEST(TimerThreadTest, EarlierCallbackOvertakes) {
  TimerThread timer;
  std::promise<int> first;
  timer.RunAt(Clock::now() + std::chrono::hours(1), [] {});
  timer.RunAt(Clock::now() + milliseconds(5), [&] { first.set_value(1); });
  auto future = first.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST(TimerThreadTest, DestructorRunsWhatStillWaits) {
  int ran = 0;
  {
    TimerThread timer;
    timer.RunAt(Clock::now() + std::chrono::hours(1), [&] { ++ran; });
    timer.RunAt(Clock::now() + std::chrono::hours(2), [&] { ++ran; });
  }
  EXPECT_EQ(ran, 2);
}

TEST(TimerThreadTest, CallbacksMayScheduleFromManyThreads) {
  constexpr int kThreads = 4, kEach = 200;
  std::atomic<int> ran{0};
  {
    TimerThread timer;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          timer.RunAt(Clock::now(), [&] { timer.RunAt(Clock::now(), [&] { ++ran; }); });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran, kThreads * kEach);
}

}  // namespace
}  // namespace trepak
