#include "ops/runtime/observe/emulated_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <future>
#include <thread>

#include "ops/runtime/net/undisturbed.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using Clock = EmulatedStream::Clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

TEST(EmulatedStreamTest, PiecesRunOneAfterTheOther) {
  TimerThread timer;
  EmulatedStream stream(timer);
  std::promise<void> first, second;
  // The first one is under way for longer than this thread may stand still.
  const auto one = stream.Enqueue(milliseconds(1000), [&] { first.set_value(); });
  const auto two = stream.Enqueue(milliseconds(30), [&] { second.set_value(); });
  EXPECT_EQ(two.begin, one.end);
  EXPECT_EQ(two.end - one.begin, milliseconds(1030));
  first.get_future().wait();
  EXPECT_GE(Clock::now(), one.end);
  second.get_future().wait();
  EXPECT_GE(Clock::now(), two.end);
  EXPECT_EQ(stream.total(), milliseconds(1030));
}

// A chain in which each piece is enqueued when the one before is done: what a graph of layers does.
TEST(EmulatedStreamTest, ChainOfPiecesTakesItsSum) {
  TimerThread timer;
  constexpr int kPieces = 50;
  constexpr double kLimit = 2.0 * kPieces * 1.2;
  const double took = Undisturbed(kLimit, [&] {
    EmulatedStream stream(timer);  // a new one: a late piece may begin when the last one ended
    const Clock::time_point begin = Clock::now();
    Clock::time_point end;
    for (int i = 0; i < kPieces; ++i) {
      std::promise<void> done;
      end = stream.Enqueue(milliseconds(2), [&] { done.set_value(); }).end;
      done.get_future().wait();
    }
    const double scheduled = std::chrono::duration<double, std::milli>(end - begin).count();
    EXPECT_GE(scheduled, 2.0 * kPieces);
    EXPECT_GE(MillisecondsSince(begin), scheduled);
    return scheduled;
  });
  EXPECT_LT(took, kLimit);
}

TEST(EmulatedStreamTest, PieceAfterAPauseBeginsNow) {
  TimerThread timer;
  EmulatedStream stream(timer);
  std::promise<void> first, second;
  const auto one = stream.Enqueue(milliseconds(1), [&] { first.set_value(); });
  first.get_future().wait();
  std::this_thread::sleep_until(one.end + milliseconds(10));
  const auto two = stream.Enqueue(milliseconds(1), [&] { second.set_value(); });
  EXPECT_GE(two.begin - one.end, milliseconds(10));
  second.get_future().wait();
}

TEST(EmulatedStreamTest, WaitingCostsNoCpu) {
  TimerThread timer;
  EmulatedStream stream(timer);
  const double cpu = Undisturbed(0.1, [&] {
    const std::clock_t before = std::clock();
    std::promise<void> done;
    stream.Enqueue(milliseconds(300), [&] { done.set_value(); });
    done.get_future().wait();
    return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  });
  EXPECT_LT(cpu, 0.1);
}

}  // namespace
}  // namespace trepak
