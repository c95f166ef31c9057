// How full a MemoryPool was: its peaks, its curve, and the timeline's.

#include <algorithm>
#include <chrono>

#include "ops/runtime/dymem/memory_pool.h"

namespace trepak {

std::vector<MemoryPoint> MemoryPool::curve() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return curve_.points();
}

void MemoryPool::Record() {
  const Placement::Figures& placed = placement_->figures();
  const MemoryPoint now{std::chrono::steady_clock::now(), placed.live + figures_.small,
                        placed.occupied + figures_.small};
  figures_.peak_live = std::max(figures_.peak_live, now.live);
  figures_.peak_small = std::max(figures_.peak_small, figures_.small);
  figures_.peak_occupied = std::max(figures_.peak_occupied, now.occupied);
  peak_extent_ = std::max(peak_extent_, placed.extent + figures_.small);
  curve_.Add(now);
  if (options_.timeline->on()) {
    Show(now);
  }
}

void MemoryPool::Show(const MemoryPoint& now) {
  // Less can't be seen in a picture.
  const size_t least = options_.limit / 256;
  const auto differs = [&](size_t one, size_t other) {
    return std::max(one, other) - std::min(one, other) >= least;
  };
  if (differs(now.live, shown_.live) || differs(now.occupied, shown_.occupied)) {
    options_.timeline->Counter("Dymem: live bytes", now.time, static_cast<int64_t>(now.live));
    options_.timeline->Counter("Dymem: occupied bytes", now.time,
                               static_cast<int64_t>(now.occupied));
    shown_ = now;
  }
}

void MemoryPool::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  figures_.peak_live = figures_.peak_occupied = figures_.peak_small = 0;
  figures_.peak_outside = figures_.outside;
  figures_.worst_fragmentation = fragmentation_sum_ = 0;
  fragmentation_of_ = 0;
  curve_.Clear();
  Record();
}

}  // namespace trepak
