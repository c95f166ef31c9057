// One run of the graph of a training step.

#ifndef TREPAK_OPS_DYMEM_STEP_H_
#define TREPAK_OPS_DYMEM_STEP_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "ops/dymem.h"
#include "ops/runtime/dymem/fit_gate.h"
#include "ops/runtime/dymem/step_turns.h"

namespace trepak {

// Whether it stays in memory whole, and the turns of its layers.
//
// Thread safety: every method may be called from any thread.
class DymemStep {
 public:
  static constexpr char kName[] = "step of Dymem";

  // `id`: TensorFlow's. `gate`: of the graph. `is_apart`: tensors of it lie on a device.
  DymemStep(Dymem* dymem, int64_t id, std::shared_ptr<FitGate> gate, bool is_apart, int turns)
      : dymem_(*dymem),
        id_(id),
        may_stay_(!is_apart && dymem->MayStay()),
        fit_(std::move(gate), limit()),
        turns_(std::make_shared<StepTurns>(turns, kPatience, &TimerThread::Global())) {
    Note();
    dymem_.CountKept(Stays() ? 1 : 0);
  }

  int64_t id() const { return id_; }
  StepTurns& turns() { return *turns_; }

  // What it needs by now.
  void Note() { fit_.Note(dymem_.needed()); }
  bool Stays() const { return may_stay_ && fit_.stays(); }
  // Whether layers begin before their turns. Near a full pool they do not: what runs can't leave.
  bool RunsAhead() const { return Stays() && FitGate::WithReserve(dymem_.needed()) <= limit(); }
  // A tensor that stayed had to leave.
  void Short() { dymem_.CountKept(may_stay_ && fit_.Short() ? -1 : 0); }

 private:
  // Only what can't be waited for takes so long; a slow disk does not.
  static constexpr std::chrono::hours kPatience{1};

  size_t limit() const { return dymem_.pool().limit() - dymem_.options().pool.beta; }

  Dymem& dymem_;
  const int64_t id_;
  const bool may_stay_;
  FitStep fit_;
  const std::shared_ptr<StepTurns> turns_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_STEP_H_
