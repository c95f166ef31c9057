#include "ops/runtime/dymem/fit_gate.h"

#include <algorithm>

namespace trepak {
namespace {

size_t WithReserve(size_t bytes) { return bytes + bytes / FitGate::kReservePart; }

}  // namespace

void FitGate::Begin(size_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (keeps_) {
    keeps_ = needed_ <= limit;
  } else {
    const bool fitted_before = short_need_ == 0 || WithReserve(needed_) < short_need_;
    keeps_ = has_run_ && fitted_before && WithReserve(needed_) <= limit;
  }
  kept_steps_ += keeps_ ? 1 : 0;
  has_run_ = true;
  needed_ = 0;
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

bool FitGate::keeps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return keeps_;
}

int64_t FitGate::kept_steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return kept_steps_;
}

}  // namespace trepak
