// Turns of the layers of one step that runs.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_STEP_TURNS_H_
#define TREPAK_OPS_RUNTIME_DYMEM_STEP_TURNS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/net/timer_thread.h"

namespace trepak {

// A layer waits for its turn, and the layer before it passes the turn on when it has ended. No edge
// of the graph says so, so that whether to wait is decided while the step runs.
//
// Thread safety: every method may be called from any thread. Use it by a std::shared_ptr.
class StepTurns : public std::enable_shared_from_this<StepTurns> {
 public:
  using Begin = std::function<void(const Status&)>;

  // `patience`: if no turn comes and nobody begins to wait for so long, those who wait are told so.
  // A graph may have been changed so that a layer waits for itself. `timer`: outlives all steps.
  StepTurns(int count, std::chrono::milliseconds patience, TimerThread* timer)
      : turns_(count), patience_(patience), timer_(*timer) {}

  // Calls `begin` once, when that turn has come, or with an error if it won't come.
  void Wait(int turn, Begin begin);
  void Pass(int turn) { End(turn, OkStatus()); }
  // The step ends early. Before Wait, or after it.
  void Cancel(int turn) { End(turn, CancelledError("the step was cancelled")); }

 private:
  struct Turn {
    bool has_ended = false;  // passed on, or cancelled
    Status status;           // why, if it is not passed on
    Begin waiting;           // who waits for it
  };

  void End(int turn, Status status);
  // Under mutex_.
  void Watch();
  void CheckProgress();

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Turn> turns_;
  bool is_watched_ = false;
  TimerThread::Clock::time_point last_change_;

  const std::chrono::milliseconds patience_;
  TimerThread& timer_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_STEP_TURNS_H_
