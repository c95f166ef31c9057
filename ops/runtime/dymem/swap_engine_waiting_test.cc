#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/dymem/swap_engine.h"
#include "ops/runtime/dymem/swap_testing.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(SwapEngineWaitingTest, BlockedPrefetchDoesNotBlockOffloads) {
  TestTensor fetched(100, 1), other(100, 2);
  TestFetch fetch;
  ToldEngine told;
  const int64_t handle = told->Offload(fetched.Source("fetched"));
  ASSERT_EQ(Sync(told), OkStatus());
  SwapTarget target = fetch.Target();
  bool released = false;
  // As an allocator does that is short of memory.
  target.allocate = [&, allocate = target.allocate](size_t bytes, char** to) {
    fetch.allocations.Pass();
    released = told->WaitForRelease(Soon(), 1);
    return allocate(bytes, to);
  };
  fetch.allocations.Close();
  told->Fetch(handle, target);
  fetch.allocations.AwaitArrivals(1);
  told.tier->writes.Close();
  told->Offload(other.Source("other"));
  told.tier->writes.AwaitArrivals(2);
  fetch.allocations.Open();
  told.tier->writes.Open();
  ASSERT_EQ(fetch.Result(), OkStatus());
  EXPECT_TRUE(released);
  EXPECT_EQ(other.released, 1);
}

TEST(SwapEngineWaitingTest, WaitForReleaseIsFalseAtOnceIfNothingIsUnderWay) {
  TestTensor stays(2000, 1), goes(10, 2);
  ToldEngine told(1000);
  EXPECT_FALSE(told->WaitForRelease(Soon()));
  told->Offload(stays.Source("stays"));
  EXPECT_FALSE(told->WaitForRelease(Soon())) << "it is not released";
  told.tier->writes.Close();
  const int64_t before = told->releases();
  told->Offload(goes.Source("goes"));
  told.tier->writes.AwaitArrivals(1);
  EXPECT_FALSE(told->WaitForRelease(Now() + milliseconds(10))) << "in time";
  std::thread opens([&] { told.tier->writes.Open(); });
  EXPECT_TRUE(told->WaitForRelease(Soon(), before));
  EXPECT_EQ(goes.released, 1);
  EXPECT_TRUE(told->WaitForRelease(Now(), before)) << "that was before the call";
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_FALSE(told->WaitForRelease(Soon(), told->releases()));
  opens.join();
}

TEST(SwapEngineWaitingTest, WaitForFetchIsForTheFirstOfThem) {
  TestTensor first(100, 1), second(100, 2);
  TestFetch one, two;
  ToldEngine told;
  EXPECT_FALSE(told->WaitForFetch(Soon())) << "there is none";
  const int64_t handle = told->Offload(first.Source("first"));
  const int64_t other = told->Offload(second.Source("second"));
  ASSERT_EQ(Sync(told), OkStatus());
  bool waited_for_itself = true;
  SwapTarget target = one.Target();
  target.allocate = [&, allocate = target.allocate](size_t bytes, char** to) {
    waited_for_itself = told->WaitForFetch(Soon());
    return allocate(bytes, to);
  };
  told.tier->reads.Close();
  told->Fetch(handle, target);
  told->Fetch(other, two.Target());
  told.tier->reads.AwaitArrivals(1);
  EXPECT_FALSE(waited_for_itself);
  EXPECT_FALSE(told->WaitForFetch(Now() + milliseconds(10))) << "in time";
  std::promise<void> begins;
  auto waits = std::async(std::launch::async, [&] {
    begins.set_value();
    return told->WaitForFetch(Soon());
  });
  begins.get_future().wait();
  ASSERT_TRUE(OthersSleep());  // it waits
  told.tier->reads.LetOnePass();
  EXPECT_TRUE(waits.get()) << "it needs no second one";
  told.tier->reads.Open();
  ASSERT_EQ(one.Result(), OkStatus());
  ASSERT_EQ(two.Result(), OkStatus());
}

TEST(SwapEngineWaitingTest, DeadlinesNameHowManyAndTheFirst) {
  TestTensor first(100, 1), second(100, 2), third(100, 3);
  TestFetch one, two;
  ToldEngine told;
  const int64_t handle = told->Offload(first.Source("first"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(told->SynchronizeOffloads(Now()), OkStatus());
  EXPECT_EQ(told->SynchronizeFetches(Now()), OkStatus());
  told.tier->writes.Close();
  told.tier->reads.Close();
  const int64_t other = told->Offload(second.Source("second"));
  told->Offload(third.Source("third"));
  told->Fetch(handle, one.Target());
  told->Fetch(other, two.Target());
  told.tier->reads.AwaitArrivals(1);
  const Status offloads = told->SynchronizeOffloads(Now() + milliseconds(5));
  EXPECT_EQ(offloads.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(offloads.message()),
              AllOf(HasSubstr("2 offloads"), HasSubstr("tensor 'second' of 100 bytes")));
  const Status fetches = told->SynchronizeFetches(Now() + milliseconds(5));
  EXPECT_EQ(fetches.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(fetches.message()),
              AllOf(HasSubstr("2 fetches"), HasSubstr("tensor 'first'")));
  told.tier->writes.Open();
  told.tier->reads.Open();
  EXPECT_EQ(told->SynchronizeFetches(Soon()), OkStatus());
  EXPECT_EQ(one.Result(), OkStatus());
  EXPECT_EQ(two.Result(), OkStatus());
}

TEST(SwapEngineWaitingTest, FetchHasADeadlineForTheOffload) {
  TestTensor tensor(100, 1);
  TestFetch fetch;
  SwapOptions options;
  options.patience = milliseconds(5);
  ToldEngine told(1000, options);
  told.tier->writes.Close();
  const int64_t handle = told->Offload(tensor.Source("x"));
  told.tier->writes.AwaitArrivals(1);
  told->Fetch(handle, fetch.Target());
  const Status status = fetch.Result();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'x' is not fetched"));
  told.tier->writes.Open();
  ASSERT_EQ(Sync(told), OkStatus());
  std::vector<char> bytes;
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus()) << "it is still there";
  EXPECT_TRUE(tensor.Equals(bytes));
}

TEST(SwapEngineWaitingTest, SynchronizingDoesNotWaitForWhatComesLater) {
  TestTensor first(100, 1), second(100, 2);
  ToldEngine told;
  told.tier->writes.Close();
  told->Offload(first.Source("first"));
  std::promise<void> begins;
  std::future<Status> synchronized = std::async(std::launch::async, [&] {
    begins.set_value();
    return told->SynchronizeOffloads(Soon());
  });
  begins.get_future().wait();
  ASSERT_TRUE(OthersSleep());  // it waits
  told->Offload(second.Source("second"));
  told.tier->writes.LetOnePass();
  EXPECT_EQ(synchronized.get(), OkStatus());
  EXPECT_EQ(second.released, 0);
}

TEST(SwapEngineWaitingTest, EmulatedLinkTakesItsTime) {
  TestTensor tensor(20000, 1);
  SwapOptions options;
  options.offload_bytes_per_second = 1e6;
  options.fetch_bytes_per_second = 2e6;
  ToldEngine told(100000, options);
  auto begin = Now();
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_GE(Now() - begin, milliseconds(20));
  begin = Now();
  std::vector<char> bytes;
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus());
  EXPECT_GE(Now() - begin, milliseconds(10));
  EXPECT_GE(told->counters().offload_busy_seconds, 0.02);
  EXPECT_GE(told->counters().fetch_busy_seconds, 0.01);
}

TEST(SwapEngineWaitingTest, DestructorReleasesAllAndFailsFetchesThatAreQueued) {
  TestTensor done(100, 1), under_way(100, 2), queued(100, 3), stays(5000, 4);
  TestFetch blocked, fails;
  SwapOptions options;
  options.offload_bytes_per_second = 1e-3;  // a day for each
  auto told = std::make_unique<ToldEngine>(1000, options);
  auto& engine = *told->engine;
  const int64_t kept = engine.Offload(stays.Source("stays"));
  ASSERT_EQ(engine.SynchronizeOffloads(Soon()), OkStatus());
  blocked.allocations.Close();
  engine.Fetch(kept, blocked.Target());
  blocked.allocations.AwaitArrivals(1);
  engine.Offload(under_way.Source("under way"));
  const int64_t handle = engine.Offload(queued.Source("queued"));
  engine.Offload(done.Source("queued too"));
  engine.Fetch(handle, fails.Target());
  told->tier->writes.AwaitArrivals(1);
  std::thread ends([&] { told = nullptr; });
  blocked.allocations.Open();
  ends.join();
  EXPECT_TRUE(blocked.Result().ok());
  EXPECT_TRUE(stays.Equals(blocked.bytes()));
  const Status status = fails.Result();  // it may have had its turn before the end
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status;
  for (const auto* tensor : {&done, &under_way, &queued, &stays}) {
    EXPECT_EQ(tensor->released, 1);
  }
}

TEST(SwapEngineWaitingTest, EndDoesNotWaitForReleasesThatWillNotCome) {
  TestTensor first(5000, 1), under_way(100, 2), queued(100, 3);
  TestFetch fetch;
  SwapOptions options;
  options.offload_bytes_per_second = 1e-3;
  ToldEngine told(1000, options);
  const int64_t handle = told->Offload(first.Source("stays"));
  ASSERT_EQ(Sync(told), OkStatus());
  SwapEngine& engine = *told.engine;  // whose pointer is null while it is being destroyed
  SwapTarget target = fetch.Target();
  target.allocate = [&](size_t, char**) {
    fetch.allocations.Pass();
    while (engine.WaitForRelease(SwapEngine::Clock::time_point::max())) {
    }
    return ResourceExhaustedError("no memory");
  };
  told->Offload(under_way.Source("under way"));
  told->Offload(queued.Source("queued"));
  told->Fetch(handle, target);
  fetch.allocations.AwaitArrivals(1);
  told.engine = nullptr;
  EXPECT_EQ(fetch.Result().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(first.released, 1);
  EXPECT_EQ(under_way.released, 1);
  EXPECT_EQ(queued.released, 1);
}

}  // namespace
}  // namespace trepak
