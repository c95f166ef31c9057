// Tensors of a device, whose memory the processor can't read: they are copied by functions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/swap_engine.h"
#include "ops/runtime/dymem/swap_testing.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// A tensor of a device, whose copy to memory ends when it is told to. Must outlive the engine, and
// is the test's thread's alone but for what the engine calls.
class DeviceTensor {
 public:
  DeviceTensor(size_t bytes, uint64_t seed) : bytes_(SwapBytes(bytes, seed)) {}

  SwapSource Source(const std::string& name) {
    SwapSource source;
    source.name = name;
    source.bytes = bytes_.size();
    source.release = [this] { ++released; };
    source.copy_out = [this] {
      host_ = std::shared_ptr<char>(new char[bytes_.size()], std::default_delete<char[]>());
      ++begun;
      HostCopy made{host_, done_.get_future()};
      if (ends_at_once) {
        End();
      }
      return made;
    };
    return source;
  }
  void End(const Status& status = OkStatus()) {
    std::memcpy(host_.get(), bytes_.data(), bytes_.size());
    host = host_;
    host_ = nullptr;
    done_.set_value(status);
  }
  // Where it comes back to; it may also be taken back.
  SwapTarget Target() {
    return {[this](size_t bytes, char**) {
              back_.resize(bytes);
              return OkStatus();
            },
            [this](Status status) { fetched_.set_value(std::move(status)); },
            [this] { taken_back = true; },
            [this](const std::shared_ptr<char>& from) {
              std::memcpy(back_.data(), from.get(), back_.size());
              return copy_in_status;
            }};
  }
  // Waits for the fetch, once.
  Status Result() { return fetched_.get_future().get(); }
  bool IsBack() const { return back_ == bytes_; }

  bool ends_at_once = true;
  Status copy_in_status;
  std::atomic<int> begun{0};
  std::atomic<int> released{0};
  std::atomic<bool> taken_back{false};
  std::weak_ptr<char> host;  // once the copy has ended

 private:
  const std::vector<char> bytes_;
  std::vector<char> back_;
  std::shared_ptr<char> host_;  // which the copy holds
  std::promise<Status> done_;
  std::promise<Status> fetched_;
};

Status FetchNow(const ToldEngine& told, int64_t handle, DeviceTensor& tensor) {
  told->Fetch(handle, tensor.Target());
  return tensor.Result();
}

TEST(SwapEngineDeviceTest, ComesBackFromBothTiersAndLeavesNothing) {
  std::unique_ptr<SwapTier> file;
  ASSERT_EQ(MakeFileTier(testing::TempDir(), SwapTier::kNoLimit, &file), OkStatus());
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(TestMemory(1 << 20));
  tiers.push_back(std::move(file));
  for (auto& tier : tiers) {
    DeviceTensor one(300'007, 1), other(1, 2);
    SwapOptions options;
    options.checksums = true;
    SwapEngine engine(std::move(tier), options);
    for (DeviceTensor* const tensor : {&one, &other}) {
      const int64_t handle = engine.Offload(tensor->Source("x"));
      ASSERT_EQ(engine.SynchronizeOffloads(Soon()), OkStatus());
      EXPECT_EQ(tensor->released, 1);
      EXPECT_GT(engine.tier().used(), 0U);
      engine.Fetch(handle, tensor->Target());
      ASSERT_EQ(tensor->Result(), OkStatus());
      EXPECT_TRUE(tensor->IsBack());
      ASSERT_EQ(engine.SynchronizeFetches(Soon()), OkStatus());
      EXPECT_TRUE(tensor->host.expired());
      EXPECT_EQ(engine.tier().used(), 0U);
    }
    const SwapCounters counters = engine.counters();
    EXPECT_EQ(counters.offloaded_bytes, 300'008);
    EXPECT_EQ(counters.fetched_bytes, 300'008);
    EXPECT_EQ(counters.fetched_tensors, 2);
    EXPECT_EQ(counters.waiting_tensors, 0);
  }
}

TEST(SwapEngineDeviceTest, CopiesBeginAtOnceAndReleaseWhenTheyAreDone) {
  DeviceTensor first(100, 1), second(100, 2);
  first.ends_at_once = second.ends_at_once = false;
  ToldEngine told;
  told->Offload(first.Source("first"));
  told->Offload(second.Source("second"));
  EXPECT_EQ(second.begun, 1);  // though the first is under way
  EXPECT_THAT(told->SynchronizeOffloads(Now() + milliseconds(50)).message(), HasSubstr("'first'"));
  EXPECT_EQ(first.released, 0);
  first.End();
  second.End();
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(first.released + second.released, 2);
}

TEST(SwapEngineDeviceTest, WhatFindsNoRoomStaysAndBeginsNoCopy) {
  DeviceTensor tensor(100, 1);
  ToldEngine told(64);
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(tensor.begun, 0);
  EXPECT_THAT(told->first_failure().message(), AllOf(HasSubstr("'x'"), HasSubstr("stays")));
  ASSERT_EQ(FetchNow(told, handle, tensor), OkStatus());
  EXPECT_TRUE(tensor.taken_back);
  EXPECT_EQ(tensor.released, 0);
  EXPECT_EQ(told->counters().kept_tensors, 1);
}

TEST(SwapEngineDeviceTest, ACopyThatFailsLeavesTheTensorWhereItIs) {
  DeviceTensor tensor(100, 1);
  tensor.ends_at_once = false;
  ToldEngine told;
  const int64_t handle = told->Offload(tensor.Source("x"));
  tensor.End(InternalError("the link is down"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_THAT(told->first_failure().message(), HasSubstr("the link is down"));
  ASSERT_EQ(FetchNow(told, handle, tensor), OkStatus());
  EXPECT_TRUE(tensor.taken_back);
  EXPECT_EQ(told->tier().used(), 0U);
}

TEST(SwapEngineDeviceTest, ACopyThatDoesNotEndFailsInTime) {
  DeviceTensor tensor(100, 1);
  tensor.ends_at_once = false;
  SwapOptions options;
  options.patience = milliseconds(50);
  ToldEngine told(1000, options);
  told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_THAT(told->first_failure().message(), HasSubstr("does not end its copy"));
  tensor.End();
}

TEST(SwapEngineDeviceTest, WhatIsFetchedBeforeItsTurnIsTakenBackAndGivesItsRoom) {
  DeviceTensor first(100, 1), tensor(100, 2);
  first.ends_at_once = tensor.ends_at_once = false;
  ToldEngine told;
  told->Offload(first.Source("first"));
  const int64_t handle = told->Offload(tensor.Source("x"));
  EXPECT_EQ(told->tier().used(), 2 * 128U);
  ASSERT_EQ(FetchNow(told, handle, tensor), OkStatus());
  EXPECT_TRUE(tensor.taken_back);
  EXPECT_EQ(told->counters().cancelled_offloads, 1);
  EXPECT_EQ(told->tier().used(), 128U);
  tensor.End();  // into memory that the copy holds
  EXPECT_TRUE(tensor.host.expired());
  first.End();
}

TEST(SwapEngineDeviceTest, WhatIsDroppedBeforeItsTurnIsReleasedAtOnce) {
  DeviceTensor first(100, 1), tensor(100, 2);
  first.ends_at_once = tensor.ends_at_once = false;
  ToldEngine told;
  told->Offload(first.Source("first"));
  told->Drop(told->Offload(tensor.Source("x")));
  EXPECT_EQ(tensor.released, 1);
  tensor.End();
  EXPECT_TRUE(tensor.host.expired());
  first.End();
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_EQ(told->tier().used(), 128U);
}

TEST(SwapEngineDeviceTest, AChangeInMemoryIsFound) {
  DeviceTensor tensor(100, 1);
  SwapOptions options;
  options.checksums = true;
  ToldEngine told(1000, options);
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  tensor.host.lock().get()[7] ^= 1;
  EXPECT_THAT(FetchNow(told, handle, tensor).message(), HasSubstr("came back changed"));
  told->Drop(handle);
  EXPECT_TRUE(tensor.host.expired());
}

TEST(SwapEngineDeviceTest, AFetchThatFailsMayBeTriedAgain) {
  DeviceTensor tensor(100, 1);
  tensor.copy_in_status = InternalError("the link is down");
  ToldEngine told;
  const int64_t handle = told->Offload(tensor.Source("x"));
  ASSERT_EQ(Sync(told), OkStatus());
  EXPECT_THAT(FetchNow(told, handle, tensor).message(),
              AllOf(HasSubstr("'x'"), HasSubstr("the link is down")));
  tensor.copy_in_status = OkStatus();
  TestFetch done;
  SwapTarget again = tensor.Target();
  again.done = done.Target().done;
  told->Fetch(handle, again);
  ASSERT_EQ(done.Result(), OkStatus());
  EXPECT_TRUE(tensor.IsBack());
}

}  // namespace
}  // namespace trepak
