#include "ops/runtime/dymem/other_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace trepak {
namespace {

// A sanitizer's own thread runs now and then.
bool BecomesFalse() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (OtherThreadsRun() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  return !OtherThreadsRun();
}

TEST(OtherThreadsTest, OneThatComputesRuns) {
  std::atomic<bool> ends{false};
  std::atomic<bool> begun{false};
  std::thread computes([&] {
    for (begun = true; !ends;) {
    }
  });
  while (!begun) {
    std::this_thread::yield();
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(OtherThreadsRun()) << "with a processor or without";
  }
  ends = true;
  computes.join();
  EXPECT_TRUE(BecomesFalse()) << "this thread itself does not count";
}

TEST(OtherThreadsTest, OneThatWaitsSleeps) {
  std::promise<void> ends;
  std::thread waits([&] { ends.get_future().wait(); });
  EXPECT_TRUE(BecomesFalse());
  ends.set_value();
  waits.join();
}

}  // namespace
}  // namespace trepak
