#include "ops/runtime/dymem/fit_gate.h"

#include <algorithm>

namespace trepak {
namespace {

size_t WithReserve(size_t bytes) { return bytes + bytes / FitGate::kReservePart; }

}  // namespace

bool FitGate::Keeps(int64_t step, size_t needed, size_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (step_ != step) {
    const bool fitted_before = short_need_ == 0 || WithReserve(needed_) < short_need_;
    keeps_ = step_.has_value() && fitted_before && WithReserve(needed_) <= limit;
    kept_steps_ += keeps_ ? 1 : 0;
    step_ = step;
    needed_ = 0;
  }
  needed_ = std::max(needed_, needed);
  return keeps_;
}

void FitGate::Note(size_t needed) {
  std::lock_guard<std::mutex> lock(mutex_);
  needed_ = std::max(needed_, needed);
}

void FitGate::Short() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (keeps_) {
    keeps_ = false;
    --kept_steps_;
    short_need_ = needed_;
  }
}

int64_t FitGate::kept_steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return kept_steps_;
}

}  // namespace trepak
