#include "ops/runtime/dymem/fit_gate.h"

#include <algorithm>

namespace trepak {

bool FitGate::Begin(size_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool has_fallen = limit < std::exchange(limit_, limit);
  switch (last_) {
    case Outcome::kNone:
    case Outcome::kShort:
      return false;
    case Outcome::kStayed:
      return !has_fallen || needed_ <= limit;
    case Outcome::kSwapped:
      return WithReserve(needed_) <= limit && (!was_short_ || WithReserve(needed_) < short_need_);
  }
  return false;
}

void FitGate::End(size_t needed, Outcome outcome) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_ = outcome;
  needed_ = needed;
  if (outcome == Outcome::kShort) {
    was_short_ = true;
    short_need_ = 0;
  } else if (outcome == Outcome::kSwapped && was_short_) {
    short_need_ = std::max(short_need_, needed);
  }
}

FitStep::~FitStep() {
  using Outcome = FitGate::Outcome;
  gate_->End(needed_, stays_ ? Outcome::kStayed : stayed_ ? Outcome::kShort : Outcome::kSwapped);
}

void FitStep::Note(size_t needed) {
  size_t most = needed_;
  while (most < needed && !needed_.compare_exchange_weak(most, needed)) {
  }
}

}  // namespace trepak
