// For tests: tensors to swap, and a tier that does as it is told.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_SWAP_TESTING_H_
#define TREPAK_OPS_RUNTIME_DYMEM_SWAP_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/other_threads.h"
#include "ops/runtime/dymem/swap_engine.h"

namespace trepak {

// Bytes that no other seed or size has.
inline std::vector<char> SwapBytes(size_t bytes, uint64_t seed) {
  std::vector<char> made(bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15 + bytes + 1;
  // By words: sanitizers look at every access.
  for (size_t at = 0; at < bytes; at += sizeof state) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uint64_t word = state ^ state >> 29;
    std::memcpy(made.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return made;
}

inline std::unique_ptr<SwapTier> TestMemory(size_t limit) {
  std::unique_ptr<SwapTier> tier;
  EXPECT_EQ(MakeMemoryTier(limit, &tier), OkStatus());
  return tier;
}

// Long enough for a machine that stands still for a while.
inline SwapEngine::Clock::time_point Soon() {
  return SwapEngine::Clock::now() + std::chrono::seconds(60);
}
inline SwapEngine::Clock::time_point Now() { return SwapEngine::Clock::now(); }

// Until all other threads sleep, so that what was begun in them waits for something. False if they
// do not come to that. A sanitizer's own thread runs now and then.
inline bool OthersSleep() {
  const auto deadline = Soon();
  while (OtherThreadsRun()) {
    if (Now() > deadline) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

// A gate that threads wait at. Thread safety: every method may be called from any thread.
class Gate {
 public:
  void Close() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // The next that comes, or one that waits there.
  void LetOnePass() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++may_pass_;
    changed_.notify_all();
  }
  // Comes to the gate, and goes through when it is open.
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_ || may_pass_ > 0; });
    may_pass_ -= may_pass_ > 0 ? 1 : 0;
  }
  // Until so many have come to the gate, ever.
  void AwaitArrivals(int arrivals) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= arrivals; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int arrived_ = 0;
  int may_pass_ = 0;  // though the gate is closed
};

// Memory whose writes and reads wait at gates, and fail when told to. Its fields that are no gates
// are set while no stream is at work.
class ToldTier final : public SwapTier {
 public:
  explicit ToldTier(size_t limit) : memory_(TestMemory(limit)) {}

  Status Take(size_t bytes, Slot* slot) override { return memory_->Take(bytes, slot); }
  Status Write(const Slot& slot, const char* from, size_t bytes) override {
    writes.Pass();
    if (!write_status.ok()) {
      return write_status;
    }
    Status status = memory_->Write(slot, from, bytes);
    if (after_write) {
      after_write(slot);
    }
    return status;
  }
  Status Read(const Slot& slot, char* to, size_t bytes) override {
    reads.Pass();
    return read_status.ok() ? memory_->Read(slot, to, bytes) : read_status;
  }
  Status Give(const Slot& slot) override { return memory_->Give(slot); }
  bool is_memory() const override { return memory_->is_memory(); }
  size_t limit() const override { return memory_->limit(); }
  size_t used() const override { return memory_->used(); }
  size_t peak() const override { return memory_->peak(); }
  size_t held() const override { return memory_->held(); }

  // What lies in a slot, for tests that damage it.
  SwapTier& memory() { return *memory_; }

  Gate writes;
  Gate reads;
  Status write_status;
  Status read_status;
  std::function<void(const Slot& slot)> after_write;

 private:
  const std::unique_ptr<SwapTier> memory_;
};

// An engine whose tier does as it is told; destroyed before the tensors of a test, if made after.
class ToldEngine {
 public:
  explicit ToldEngine(size_t limit = size_t{100} << 20, SwapOptions options = {}) {
    auto made = std::make_unique<ToldTier>(limit);
    tier = made.get();
    engine = std::make_unique<SwapEngine>(std::move(made), options);
  }
  ~ToldEngine() {
    if (engine != nullptr) {
      tier->writes.Open();
      tier->reads.Open();
    }
  }
  SwapEngine* operator->() const { return engine.get(); }

  ToldTier* tier = nullptr;  // as long as the engine is there
  std::unique_ptr<SwapEngine> engine;
};

// Until all offloads are done.
inline Status Sync(const ToldEngine& told) { return told->SynchronizeOffloads(Soon()); }

// A tensor, which counts how often it is released, and whose memory is freed then. Must outlive the
// engine. Thread safety: the methods are for one thread; `released` is any's.
class TestTensor {
 public:
  TestTensor(size_t bytes, uint64_t seed)
      : expected_(SwapBytes(bytes, seed)), held_(std::make_unique<std::vector<char>>(expected_)) {}
  ~TestTensor() { EXPECT_LE(released, 1); }

  SwapSource Source(const std::string& name) {
    return {name, held_->data(), held_->size(), [this] {
              held_ = nullptr;
              ++released;
            }};
  }
  char* data() { return held_->data(); }
  size_t bytes() const { return expected_.size(); }
  bool Equals(const std::vector<char>& other) const { return other == expected_; }

  std::atomic<int> released{0};

 private:
  const std::vector<char> expected_;
  std::unique_ptr<std::vector<char>> held_;
};

// A fetch: where to, and what came of it. Must outlive it.
class TestFetch {
 public:
  SwapTarget Target() {
    return {[this](size_t bytes, char** to) {
              allocations.Pass();
              if (!allocate_status.ok()) {
                return allocate_status;
              }
              bytes_.resize(bytes);
              *to = bytes_.data();
              return OkStatus();
            },
            [this](Status status) { done_.set_value(std::move(status)); }, nullptr};
  }
  // Waits for it, once.
  Status Result() { return done_.get_future().get(); }
  const std::vector<char>& bytes() const { return bytes_; }

  Gate allocations;
  Status allocate_status;

 private:
  std::vector<char> bytes_;
  std::promise<Status> done_;
};

// Fetches and waits.
inline Status FetchNow(SwapEngine& engine, int64_t handle, std::vector<char>* bytes) {
  TestFetch fetch;
  engine.Fetch(handle, fetch.Target());
  Status status = fetch.Result();
  *bytes = fetch.bytes();
  return status;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_SWAP_TESTING_H_
