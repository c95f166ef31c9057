#include "ops/runtime/net/error_latch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace trepak {
namespace {

TEST(ErrorLatchTest, StartsOk) {
  const ErrorLatch latch;
  EXPECT_TRUE(latch.ok());
  EXPECT_EQ(latch.status(), OkStatus());
}

TEST(ErrorLatchTest, IgnoresOk) {
  ErrorLatch latch;
  EXPECT_FALSE(latch.Latch(OkStatus()));
  EXPECT_TRUE(latch.ok());
}

TEST(ErrorLatchTest, FirstErrorWinsAndStays) {
  ErrorLatch latch;
  EXPECT_TRUE(latch.Latch(UnavailableError("rank 1: gone")));
  EXPECT_FALSE(latch.Latch(AbortedError("consequence")));
  EXPECT_FALSE(latch.Latch(OkStatus()));
  EXPECT_FALSE(latch.ok());
  EXPECT_EQ(latch.status(), UnavailableError("rank 1: gone"));
  EXPECT_EQ(latch.status(), UnavailableError("rank 1: gone")) << "reading must not clear it";
}

TEST(ErrorLatchTest, CallersMayAnnotateWhatTheyGet) {
  ErrorLatch latch;
  latch.Latch(InternalError("broken"));
  EXPECT_EQ(latch.status().Annotate("push"), InternalError("push: broken"));
  EXPECT_EQ(latch.status(), InternalError("broken"));
}

// A read that follows a Latch in another thread's program order must see the error.
TEST(ErrorLatchTest, LaterCallsSeeABackgroundFailure) {
  ErrorLatch latch;
  std::thread background([&latch] { latch.Latch(InternalError("background")); });
  background.join();
  EXPECT_EQ(latch.status(), InternalError("background"));
}

TEST(ErrorLatchTest, ManyThreadsAgreeOnOneWinner) {
  constexpr int kWriters = 16;
  constexpr int kReaders = 4;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    ErrorLatch latch;
    std::atomic<bool> go{false};
    std::atomic<int> winners{0};
    std::atomic<int> winner{-1};
    std::vector<Status> seen(kReaders);
    std::vector<std::thread> threads;
    for (int i = 0; i < kWriters; ++i) {
      threads.emplace_back([&, i] {
        while (!go.load()) {
          std::this_thread::yield();
        }
        if (latch.Latch(AbortedError("writer " + std::to_string(i)))) {
          ++winners;
          winner = i;
        }
      });
    }
    for (int i = 0; i < kReaders; ++i) {
      threads.emplace_back([&, i] {
        while (latch.ok()) {
          std::this_thread::yield();
        }
        seen[static_cast<size_t>(i)] = latch.status();
      });
    }
    go = true;
    for (std::thread& thread : threads) {
      thread.join();
    }
    ASSERT_EQ(winners, 1);
    const Status expected = AbortedError("writer " + std::to_string(winner));
    ASSERT_EQ(latch.status(), expected);
    for (const Status& status : seen) {
      ASSERT_EQ(status, expected) << "a reader that saw !ok() must get the winner's error";
    }
  }
}

}  // namespace
}  // namespace trepak
