#include "ops/runtime/dymem/swap_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/swap_testing.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(SwapEngineTest, TensorsComeBackBitForBitFromBothTiers) {
  std::unique_ptr<SwapTier> file;
  ASSERT_EQ(MakeFileTier(testing::TempDir(), SwapTier::kNoLimit, &file), OkStatus());
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(TestMemory(100 * kMegabyte));
  tiers.push_back(std::move(file));
  const std::vector<size_t> sizes = {1, 0, 64, 5000, 3 * kMegabyte + 7, 4096, 9 * kMegabyte};
  for (auto& tier : tiers) {
    SwapOptions options;
    options.checksums = true;
    SwapEngine engine(std::move(tier), options);
    std::vector<std::unique_ptr<TestTensor>> tensors;
    std::vector<int64_t> handles;
    for (const size_t size : sizes) {
      tensors.push_back(std::make_unique<TestTensor>(size, handles.size()));
      handles.push_back(engine.Offload(tensors.back()->Source("x")));
    }
    ASSERT_EQ(engine.SynchronizeOffloads(Soon()), OkStatus());
    EXPECT_GE(engine.tier().used(), 12 * kMegabyte);
    for (size_t i = sizes.size(); i-- > 0;) {
      EXPECT_EQ(tensors[i]->released, 1);
      std::vector<char> bytes;
      ASSERT_EQ(FetchNow(engine, handles[i], &bytes), OkStatus());
      EXPECT_TRUE(tensors[i]->Equals(bytes));
    }
    EXPECT_EQ(engine.tier().used(), 0U);
    ASSERT_EQ(engine.SynchronizeFetches(Soon()), OkStatus());
    const SwapCounters counters = engine.counters();
    EXPECT_EQ(counters.offloaded_tensors, static_cast<int64_t>(sizes.size()));
    EXPECT_EQ(counters.fetched_tensors, static_cast<int64_t>(sizes.size()));
    EXPECT_EQ(counters.offloaded_bytes, counters.fetched_bytes);
    EXPECT_EQ(counters.kept_tensors + counters.cancelled_offloads, 0);
    EXPECT_EQ(counters.waiting_bytes, 0);
    EXPECT_GT(counters.offload_busy_seconds, 0);
    EXPECT_GT(counters.fetch_busy_seconds, 0);
    EXPECT_EQ(engine.first_failure(), OkStatus());
  }
}

TEST(SwapEngineTest, MemoryIsReleasedWhenTheCopyIsDoneAndNotBefore) {
  TestTensor tensor(1000, 1);
  ToldEngine told;
  told.tier->writes.Close();
  const int64_t handle = told->Offload(tensor.Source("x"));
  told.tier->writes.AwaitArrivals(1);
  EXPECT_EQ(tensor.released, 0);
  EXPECT_EQ(told->counters().waiting_tensors, 1);
  EXPECT_EQ(told->counters().waiting_bytes, 1000);
  told.tier->writes.Open();
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(tensor.released, 1);
  EXPECT_EQ(told->counters().waiting_tensors, 0);
  std::vector<char> bytes;
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus());
  EXPECT_TRUE(tensor.Equals(bytes));
}

TEST(SwapEngineTest, WhatAFullTierCannotTakeStaysAndComesFromThere) {
  TestTensor fits(600, 1), does_not(500, 2), fits_too(300, 3);
  ToldEngine told(1000);
  const int64_t first = told->Offload(fits.Source("fits"));
  const int64_t second = told->Offload(does_not.Source("does not"));
  const int64_t third = told->Offload(fits_too.Source("fits too"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(fits.released, 1);
  EXPECT_EQ(does_not.released, 0);
  EXPECT_EQ(fits_too.released, 1);
  EXPECT_EQ(told->counters().kept_tensors, 1);
  EXPECT_EQ(told->counters().kept_bytes, 500);
  EXPECT_EQ(told->first_failure().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(told->first_failure().message()),
              AllOf(HasSubstr("tensor 'does not' of 500 bytes stays"), HasSubstr("raise its")));
  std::vector<char> bytes;
  for (const auto& [handle, tensor] : {std::pair(third, &fits_too), {second, &does_not}}) {
    ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus());
    EXPECT_TRUE(tensor->Equals(bytes));
  }
  EXPECT_EQ(does_not.released, 1) << "when it was copied";
  told->Drop(first);
}

TEST(SwapEngineTest, FailedWriteLosesNothing) {
  TestTensor tensor(500, 1);
  ToldEngine told;
  told.tier->write_status = InternalError("the disk is broken");
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(tensor.released, 0);
  EXPECT_EQ(told.tier->used(), 0U) << "its room was given back";
  EXPECT_THAT(std::string(told->first_failure().message()), HasSubstr("the disk is broken"));
  std::vector<char> bytes;
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus());
  EXPECT_TRUE(tensor.Equals(bytes));
}

TEST(SwapEngineTest, TensorThatStayedIsTakenBackWithoutACopy) {
  TestTensor tensor(500, 1);
  ToldEngine told(10);
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  TestFetch fetch;
  SwapTarget target = fetch.Target();
  bool taken_back = false;
  target.allocate = nullptr;  // isn't called
  target.take_back = [&] { taken_back = true; };
  told->Fetch(handle, target);
  ASSERT_EQ(fetch.Result(), OkStatus());
  EXPECT_TRUE(taken_back);
  told.engine = nullptr;
  EXPECT_EQ(tensor.released, 0);
}

TEST(SwapEngineTest, FetchBeforeTheOffloadBeganCancelsIt) {
  TestTensor first(100, 1), second(100, 2);
  ToldEngine told;
  told.tier->writes.Close();
  told->Offload(first.Source("first"));
  const int64_t handle = told->Offload(second.Source("second"));
  told.tier->writes.AwaitArrivals(1);
  std::vector<char> bytes;
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus()) << "beside the one that is blocked";
  EXPECT_TRUE(second.Equals(bytes));
  EXPECT_EQ(second.released, 1);
  EXPECT_EQ(first.released, 0);
  EXPECT_EQ(told->counters().cancelled_offloads, 1);
  EXPECT_EQ(told->counters().kept_tensors, 0);
  EXPECT_EQ(told->counters().waiting_tensors, 1);
  told.tier->writes.Open();
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(told->counters().offloaded_tensors, 1);
}

TEST(SwapEngineTest, FetchDuringTheOffloadWaitsForIt) {
  TestTensor tensor(100, 1);
  TestFetch fetch;
  ToldEngine told;
  told.tier->writes.Close();
  const int64_t handle = told->Offload(tensor.Source("x"));
  told.tier->writes.AwaitArrivals(1);
  told->Fetch(handle, fetch.Target());
  ASSERT_TRUE(OthersSleep());  // it waits
  const Status late = told->SynchronizeFetches(Now() + milliseconds(20));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
  told.tier->writes.Open();
  ASSERT_EQ(fetch.Result(), OkStatus());
  EXPECT_TRUE(tensor.Equals(fetch.bytes()));
  EXPECT_EQ(told->counters().offloaded_tensors, 1);
  EXPECT_EQ(told->counters().cancelled_offloads, 0);
  EXPECT_GE(told->counters().fetch_waited_seconds, 0.02);
}

TEST(SwapEngineTest, TensorIsFetchedOnce) {
  TestTensor tensor(100, 1);
  TestFetch first, second, unknown;
  ToldEngine told;
  const int64_t handle = told->Offload(tensor.Source("x"));
  first.allocations.Close();
  told->Fetch(handle, first.Target());
  told->Fetch(handle, second.Target());
  told->Fetch(12345, unknown.Target());
  first.allocations.Open();
  EXPECT_EQ(first.Result(), OkStatus());
  const Status status = second.Result();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'x'"), HasSubstr("fetch each once")));
  EXPECT_THAT(std::string(unknown.Result().message()), HasSubstr("handle 12345"));
}

TEST(SwapEngineTest, FetchThatFailedMayBeTriedAgain) {
  TestTensor tensor(100, 1);
  ToldEngine told;
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  TestFetch no_memory;
  no_memory.allocate_status = ResourceExhaustedError("no memory");
  told->Fetch(handle, no_memory.Target());
  Status status = no_memory.Result();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tensor 'x' of 100 bytes"), HasSubstr("no memory")));
  ASSERT_EQ(told->SynchronizeFetches(Soon()), OkStatus());
  told.tier->read_status = InternalError("the disk is broken");
  std::vector<char> bytes;
  status = FetchNow(*told.engine, handle, &bytes);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'x'"));
  ASSERT_EQ(told->SynchronizeFetches(Soon()), OkStatus());
  told.tier->read_status = OkStatus();
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus());
  EXPECT_TRUE(tensor.Equals(bytes));
}

TEST(SwapEngineTest, DroppedTensorIsReleasedAndItsRoomGivenBack) {
  TestTensor under_way(100, 1), queued(100, 2), done(100, 3);
  TestFetch fetch;
  ToldEngine told;
  const int64_t first = told->Offload(done.Source("done"));
  ASSERT_EQ(Sync(told), OkStatus());
  told.tier->writes.Close();
  const int64_t second = told->Offload(under_way.Source("under way"));
  const int64_t third = told->Offload(queued.Source("queued"));
  told.tier->writes.AwaitArrivals(2);
  told->Drop(third);
  EXPECT_EQ(queued.released, 1);
  told->Fetch(second, fetch.Target());
  told->Drop(second);
  EXPECT_EQ(under_way.released, 0) << "it is being copied";
  told->Drop(first);
  told->Drop(first);
  told->Drop(777);
  told.tier->writes.Open();
  EXPECT_EQ(fetch.Result().code(), StatusCode::kNotFound);
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(under_way.released, 1);
  EXPECT_EQ(done.released, 1);
  EXPECT_EQ(told.tier->used(), 0U);
  EXPECT_EQ(told->counters().waiting_bytes, 0);
}

TEST(SwapEngineTest, TensorDroppedWhileItIsFetchedLeavesNothing) {
  for (const bool fails : {false, true}) {
    for (const size_t limit : {1000, 10}) {  // swapped out, stayed
      TestTensor tensor(100, 1);
      TestFetch fetch;
      ToldEngine told(limit);
      const int64_t handle = told->Offload(tensor.Source("x"));
      ASSERT_EQ(Sync(told), OkStatus());
      fetch.allocations.Close();
      fetch.allocate_status = fails ? CancelledError("the step ends") : OkStatus();
      told->Fetch(handle, fetch.Target());
      fetch.allocations.AwaitArrivals(1);
      told->Drop(handle);
      fetch.allocations.Open();
      EXPECT_EQ(fetch.Result().ok(), !fails);
      EXPECT_EQ(told.tier->used(), 0U);
      EXPECT_EQ(tensor.released, 1);
    }
  }
}

TEST(SwapEngineTest, ChecksumsTellOfASourceThatWasWrittenTo) {
  SwapOptions options;
  options.checksums = true;
  TestTensor tensor(1000, 1);
  ToldEngine told(kMegabyte, options);
  told.tier->after_write = [&](const SwapTier::Slot&) { tensor.data()[777] ^= 1; };
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(tensor.released, 0);
  EXPECT_EQ(told.tier->used(), 0U);
  std::vector<char> bytes;
  const Status status = FetchNow(*told.engine, handle, &bytes);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tensor 'x' of 1000 bytes was written to"), HasSubstr("only swap")));
  EXPECT_EQ(told->first_failure(), status);
}

TEST(SwapEngineTest, ChecksumsTellOfBytesThatCameBackChanged) {
  SwapOptions options;
  options.checksums = true;
  TestTensor swapped(1000, 1), stayed(2 * kMegabyte, 2);
  ToldEngine told(kMegabyte, options);
  told.tier->after_write = [&](const SwapTier::Slot& slot) {
    EXPECT_EQ(told.tier->memory().Write(slot, "?!", 2), OkStatus());
  };
  const int64_t first = told->Offload(swapped.Source("swapped"));
  const int64_t second = told->Offload(stayed.Source("stayed"));
  ASSERT_EQ(Sync(told), OkStatus());
  stayed.data()[0] ^= 1;
  std::vector<char> bytes;
  Status status = FetchNow(*told.engine, first, &bytes);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'swapped' of 1000 bytes came back"));
  status = FetchNow(*told.engine, second, &bytes);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was written to while it waited"));
}

TEST(SwapEngineTest, TimelineShowsCopies) {
  Timeline timeline;
  const std::string path = testing::TempDir() + "swap_engine_timeline.json";
  ASSERT_TRUE(timeline.Open(path, 0, "t", "{}", 0, 0, 10).ok());
  SwapOptions options;
  options.timeline = &timeline;
  TestTensor tensor(100, 1), stays(2000, 2);
  ToldEngine told(1000, options);
  const int64_t handle = told->Offload(tensor.Source("conv"));
  told->Offload(stays.Source("stays"));  // there is no room for it
  ASSERT_EQ(Sync(told), OkStatus());
  std::vector<char> bytes;
  ASSERT_EQ(FetchNow(*told.engine, handle, &bytes), OkStatus());
  ASSERT_TRUE(timeline.Close().ok());
  std::ifstream file(path);
  std::vector<std::string> spans;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"ph\":\"X\"") != std::string::npos) {
      spans.push_back(line);
    }
  }
  ASSERT_EQ(spans.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_THAT(spans[i], HasSubstr("\"name\":\"conv\""));
    EXPECT_THAT(spans[i], HasSubstr("\"args\":{\"bytes\":100}"));
    EXPECT_THAT(spans[i], HasSubstr("\"tid\":" + std::to_string(2000 + i)));
  }
}

}  // namespace
}  // namespace trepak
