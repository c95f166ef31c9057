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

// Whether it stays in memory whole, and the turns of its layers if it does not.
//
// Thread safety: every method may be called from any thread.
class DymemStep {
 public:
  static constexpr char kName[] = "step of Dymem";

  // `id`: TensorFlow's. `gate`: of the graph. `is_apart`: tensors of it lie on a device.
  DymemStep(Dymem* dymem, int64_t id, std::shared_ptr<FitGate> gate, bool is_apart, int turns)
      : dymem_(*dymem),
        id_(id),
        gate_(std::move(gate)),
        may_stay_(!is_apart && dymem->MayStay()),
        turns_(
            std::make_shared<StepTurns>(turns, std::chrono::minutes(10), &TimerThread::Global())) {
    if (may_stay_) {
      gate_->Begin(dymem->pool().limit() - dymem->options().pool.beta);
    }
    Note();
  }

  int64_t id() const { return id_; }
  StepTurns& turns() { return *turns_; }

  // What it needs by now.
  void Note() { gate_->Note(dymem_.needed()); }
  bool Stays() const { return may_stay_ && gate_->keeps(); }
  // A tensor that stayed had to leave.
  void Short() { gate_->Short(); }

 private:
  Dymem& dymem_;
  const int64_t id_;
  const std::shared_ptr<FitGate> gate_;
  const bool may_stay_;
  const std::shared_ptr<StepTurns> turns_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_STEP_H_
