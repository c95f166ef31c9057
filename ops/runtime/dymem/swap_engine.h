// Swaps tensors out and in beside the computation, each direction on a stream of its own.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_SWAP_ENGINE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_SWAP_ENGINE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "ops/runtime/dymem/swap_tier.h"
#include "ops/runtime/net/error_latch.h"
#include "ops/runtime/net/status.h"
#include "ops/runtime/observe/timeline.h"

namespace trepak {

// A tensor to be swapped out. Nobody may write to its bytes until `release` is called.
struct SwapSource {
  std::string name;  // for errors
  const char* data = nullptr;
  size_t bytes = 0;
  // Drops the caller's hold on the memory.
  std::function<void()> release;

  std::string Describe() const {
    return "tensor '" + name + "' of " + std::to_string(bytes) + " bytes";
  }
};

// What a fetch calls, on the prefetch stream's thread.
struct SwapTarget {
  // Finds memory for the tensor. It may block for as long as it takes.
  std::function<Status(size_t bytes, char** to)> allocate;
  // Called once for every fetch, last.
  std::function<void(Status)> done;
  // Optional: gets the tensor back that still lies where it was, without a copy and without memory
  // for a second one. The hold passes to the caller: it is not released. Called instead of
  // `allocate`.
  std::function<void()> take_back;
};

struct SwapOptions {
  // Tells if a tensor was written to or freed while it was swapped out, or came back changed.
  bool checksums = false;
  // Of an emulated link: a copy takes at least its bytes' time. 0 means as fast as it can.
  double offload_bytes_per_second = 0;
  double fetch_bytes_per_second = 0;
  Timeline* timeline = &Timeline::Global();  // shows the copies; outlives the engine
  // How long a fetch waits for the offload of the same tensor to end: the disk of a whole step.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

// All since the engine was made, but for what waits.
struct SwapCounters {
  int64_t offloaded_tensors = 0;
  int64_t offloaded_bytes = 0;
  int64_t fetched_tensors = 0;  // whether copied or taken back
  int64_t fetched_bytes = 0;
  int64_t taken_back_tensors = 0;
  int64_t kept_tensors = 0;  // stayed where they were, as the tier could not take them
  int64_t kept_bytes = 0;
  int64_t cancelled_offloads = 0;  // fetched before their turn, so they stayed as well
  int64_t waiting_tensors = 0;     // now: their offload is queued or under way
  int64_t waiting_bytes = 0;
  double offload_busy_seconds = 0;  // copies, the emulated link included
  double fetch_busy_seconds = 0;
  double fetch_waited_seconds = 0;  // for the offload of the same tensor to end
};

// Two threads, one for each direction, each of which does what was queued in that order. They never
// wait for each other, but for a fetch whose tensor is being offloaded just then.
//
// A tensor that the tier can't take stays where it is, and its fetch copies from there: a full tier
// costs memory, but loses nothing.
//
// Owns its tier, and what callbacks own until they have run. Thread safety: every method may be
// called from any thread, callbacks included; none is called with a lock held. A callback may not
// destroy the engine.
class SwapEngine {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SwapEngine(std::unique_ptr<SwapTier> tier, SwapOptions options = {});
  // Ends what is under way, which waits for an `allocate` that blocks; fails the fetches that are
  // queued, and releases all tensors.
  ~SwapEngine();
  SwapEngine(const SwapEngine&) = delete;
  SwapEngine& operator=(const SwapEngine&) = delete;

  // Queues a tensor and returns its handle at once. `release` is called once: on the offload
  // stream's thread when the copy is done, else when the tensor has been fetched from where it
  // stayed, is dropped, or the engine is destroyed. The caller fetches or drops every handle.
  int64_t Offload(SwapSource source);

  // Queues a fetch. It waits for an offload that is under way, and cancels one that has not begun.
  // DeadlineExceeded, naming the tensor, if that does not end in time.
  // If it fails, the tensor stays in the engine: another fetch may succeed, else it must be
  // dropped. NotFound if the handle was fetched or dropped before, or never was.
  void Fetch(int64_t handle, SwapTarget target);
  void Fetch(int64_t handle, std::function<Status(size_t bytes, char** to)> allocate,
             std::function<void(Status)> done) {
    Fetch(handle, SwapTarget{std::move(allocate), std::move(done), nullptr});
  }

  // Forgets a tensor that nobody will fetch, if it is there. Its memory is released by this thread,
  // or by the stream that is at work on it. A fetch under way goes on, one that is queued fails.
  void Drop(int64_t handle);

  // Wait until all is done that was queued before, callbacks included. DeadlineExceeded, naming the
  // first tensor, if that takes longer. What was kept is done. Not for callbacks, which would wait
  // for themselves.
  Status SynchronizeOffloads(Clock::time_point deadline) const;
  Status SynchronizeFetches(Clock::time_point deadline) const;

  // How often memory was released so far.
  int64_t releases() const;
  // For who is short of memory: waits until there are more than `releases` of them, asked for
  // before the memory was, so that none is missed. False if none will come, since no offload is
  // queued or under way, or none came in time.
  bool WaitForRelease(Clock::time_point deadline, int64_t releases) const;
  // Of those from now on. One that came just before is missed: who gets false tries once more.
  bool WaitForRelease(Clock::time_point deadline) const;
  // Waits until the first fetch of those queued or under way is done. False if there is none, if
  // this is called by what a fetch calls, or if it is not done in time.
  bool WaitForFetch(Clock::time_point deadline) const;

  SwapCounters counters() const;
  // Why a tensor stayed where it was, of the first that did; or OK.
  Status first_failure() const { return failure_.status(); }
  const SwapTier& tier() const { return *tier_; }

 private:
  struct Tensor {
    enum class State { kQueued, kOffloading, kOffloaded, kStays };

    SwapSource source;
    uint64_t checksum = 0;
    // Guarded by mutex_.
    State state = State::kQueued;
    bool fetching = false;
    bool dropped = false;
    // They, and `release`, belong to the stream that is at work on the tensor, or to who has taken
    // it out of tensors_ when none is.
    SwapTier::Slot slot;
    bool has_slot = false;
    Status changed;  // that somebody wrote to it, found when it was offloaded
  };
  using Tensors = std::map<int64_t, std::shared_ptr<Tensor>>;

  struct FetchRequest {
    int64_t handle;
    std::string name;  // for errors; empty if the handle was not known
    SwapTarget target;
  };

  // What the streams' threads run.
  void RunOffloads();
  void RunFetches();

  // To the tier, where the tensor then lies; if that fails, it has no room there.
  Status CopyOut(Tensor& tensor);
  // Waits until the tensor may be copied, and marks it as being fetched. The lock is held but while
  // it waits.
  Status BeginFetch(std::unique_lock<std::mutex>& lock, const FetchRequest& request,
                    std::shared_ptr<Tensor>* tensor);
  // To the caller, after which the engine has nothing of it; if that fails, all of it.
  Status CopyIn(Tensor& tensor, const SwapTarget& target, double* busy_seconds);
  static bool TakesBack(const Tensor& tensor, const SwapTarget& target) {
    return !tensor.has_slot && target.take_back != nullptr;
  }

  // Puts a copy that ends now into the timeline.
  void Show(Timeline::Track track, const SwapSource& source, Clock::time_point begin) const {
    options_.timeline->Span(track, source.name, begin, Clock::now(),
                            {{"bytes", static_cast<int64_t>(source.bytes)}});
  }
  // Waits until a copy of so many bytes that began then would be over on the emulated link.
  void Pace(Clock::time_point begin, size_t bytes, double bytes_per_second);
  // Takes it out of the queue, if it is there. Under mutex_.
  void Unqueue(int64_t handle);
  // It waits no more, whatever became of it. Under mutex_.
  void CountOut(const Tensor& tensor);
  // Gives up what the engine has of a tensor: its room in the tier, its memory.
  void Forget(Tensor& tensor);
  void Release(Tensor& tensor);
  // Its number; the next one's if there is none.
  int64_t FirstFetch() const {
    return fetching_ != 0 ? fetching_ : fetches_.empty() ? next_fetch_ : fetches_.begin()->first;
  }
  bool offloads_wait() const { return !offloads_.empty() || offloading_ != nullptr; }

  const std::unique_ptr<SwapTier> tier_;
  const SwapOptions options_;
  ErrorLatch failure_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // anything below
  // Guarded by mutex_.
  bool stopping_ = false;
  int64_t next_handle_ = 1;
  int64_t next_fetch_ = 1;
  int64_t releases_ = 0;
  Tensors tensors_;                          // all that may be fetched, by handle
  Tensors offloads_;                         // queued: handles come in the order of the queue
  std::map<int64_t, FetchRequest> fetches_;  // queued, by their number
  int64_t offloading_handle_ = 0;            // under way
  std::shared_ptr<Tensor> offloading_;       // null: none
  int64_t fetching_ = 0;                     // number of the one under way; 0: none
  std::string fetching_name_;
  SwapCounters counters_;

  std::thread offload_stream_;
  std::thread fetch_stream_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_SWAP_ENGINE_H_
