// One accelerator's queue of work, emulated: pieces take their time one after the other, no CPU.

#ifndef TREPAK_OPS_RUNTIME_OBSERVE_EMULATED_STREAM_H_
#define TREPAK_OPS_RUNTIME_OBSERVE_EMULATED_STREAM_H_

#include <chrono>
#include <functional>
#include <mutex>

#include "ops/runtime/net/timer_thread.h"

namespace trepak {

// Thread safety: every method may be called from any thread. Does not own the timer, which must
// outlive it.
class EmulatedStream {
 public:
  using Clock = TimerThread::Clock;
  using Duration = Clock::duration;

  // A host queues kernels ahead, so that an accelerator goes from one to the next without a gap;
  // here a piece can only come after the one before has ended and TensorFlow has been told so. A
  // piece that comes within this time is taken to have been queued ahead: it began where that one
  // ended.
  static constexpr Duration kQueuedAhead = std::chrono::milliseconds(1);

  explicit EmulatedStream(TimerThread& timer) : timer_(timer) {}
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  // A piece of work: when it began and when it ends.
  struct Piece {
    Clock::time_point begin;
    Clock::time_point end;
  };

  // Adds a piece of that duration behind all others, and calls `done` on the timer's thread when it
  // is over.
  Piece Enqueue(Duration duration, std::function<void()> done);

  // What all pieces so far take together.
  Duration total() const;

  // The one accelerator of this process, on the global timer.
  static EmulatedStream& Global();

 private:
  TimerThread& timer_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Clock::time_point end_ = Clock::time_point::min();
  Duration total_ = Duration::zero();
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_OBSERVE_EMULATED_STREAM_H_
