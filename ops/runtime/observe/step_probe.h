// Notes when each training step of this process computes and when it synchronizes.
//
// A step computes until its gradients are ready, then it is reduced, which ends when all ranks have
// been ready: what a rank waits for others shows in how much longer its reduction takes than the
// last one's.

#ifndef TREPAK_OPS_RUNTIME_OBSERVE_STEP_PROBE_H_
#define TREPAK_OPS_RUNTIME_OBSERVE_STEP_PROBE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "ops/runtime/observe/emulated_stream.h"
#include "ops/runtime/observe/injection.h"
#include "ops/runtime/observe/timeline.h"

namespace trepak {

// The times of one step, on this process's steady clock.
struct StepRecord {
  using Clock = std::chrono::steady_clock;

  int64_t step = 0;
  Clock::time_point begin;   // the end of the step before; of the first step, when it was ready
  Clock::time_point ready;   // its gradients are there, and this rank waits for others
  Clock::time_point done;    // its gradients are reduced, or handed over
  bool at_own_pace = false;  // ranks did not end it together
};

// Thread safety: every method may be called from any thread; steps themselves come one after the
// other. Owns none of its arguments; all must outlive it.
class StepProbe {
 public:
  using Clock = StepRecord::Clock;

  // Records that nobody has drained by then are dropped, the oldest first.
  static constexpr size_t kMostRecords = 65536;

  StepProbe(Injection& injection, EmulatedStream& stream, Timeline& timeline)
      : injection_(injection), stream_(stream), timeline_(timeline) {}
  StepProbe(const StepProbe&) = delete;
  StepProbe& operator=(const StepProbe&) = delete;

  // This step's gradients are computed. Returns how long the rank has to wait before they count as
  // ready, so that it is as slow as was asked for: emulated work has been slowed already, all other
  // computing has not.
  Clock::duration Computed();

  // The gradients are ready: computed and waited for.
  void Ready();

  // The step ends: its gradients are reduced, or `at_own_pace`, handed over to what will do so.
  void Done(bool at_own_pace = false);

  // Returns the records since the last call, the oldest first.
  std::vector<StepRecord> Drain();

  // That of this process.
  static StepProbe& Global();

 private:
  Injection& injection_;
  EmulatedStream& stream_;
  Timeline& timeline_;
  std::mutex mutex_;
  // All guarded by mutex_.
  StepRecord current_;
  bool first_ = true;
  EmulatedStream::Duration emulated_before_ = EmulatedStream::Duration::zero();
  std::deque<StepRecord> records_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_OBSERVE_STEP_PROBE_H_
