#include "ops/runtime/dymem/memory_curve.h"

#include <algorithm>

namespace trepak {
namespace {

// Of two points that follow each other.
void Join(MemoryPoint* first, const MemoryPoint& second) {
  first->live = std::max(first->live, second.live);
  first->occupied = std::max(first->occupied, second.occupied);
}

}  // namespace

void MemoryCurve::Add(const MemoryPoint& change) {
  if (!points_.empty() && changes_of_last_ < changes_per_point_) {
    Join(&points_.back(), change);
    ++changes_of_last_;
    return;
  }
  if (points_.size() == kMostPoints) {
    for (size_t pair = 0; pair < kMostPoints / 2; ++pair) {
      points_[pair] = points_[2 * pair];
      Join(&points_[pair], points_[2 * pair + 1]);
    }
    points_.resize(kMostPoints / 2);
    changes_per_point_ *= 2;
  }
  points_.push_back(change);
  changes_of_last_ = 1;
}

void MemoryCurve::Clear() {
  points_.clear();
  changes_per_point_ = 1;
  changes_of_last_ = 0;
}

}  // namespace trepak
