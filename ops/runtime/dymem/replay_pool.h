// The memory pool of a replay.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_REPLAY_POOL_H_
#define TREPAK_OPS_RUNTIME_DYMEM_REPLAY_POOL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ops/runtime/dymem/memory_pool.h"
#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/dymem/replay.h"

namespace trepak {

// Gives out offsets, and writes the highest of its figures into the replay's. Thread safety: none.
class ReplayPool {
 public:
  ReplayPool(const ReplayOptions& options, ReplayFigures* figures)
      : placement_(Placement::Make(
            options.kind, options.limit - std::min(options.beta, options.limit), options.limit)),
        beta_(std::min(options.beta, options.limit)),
        figures_(*figures) {}

  std::optional<size_t> Take(const Placement::Request& request) {
    if (request.bytes < MemoryPool::kSmall) {
      small_ += request.bytes;
      Note();
      return kSmallOffset;
    }
    // As MemoryPool: what is small takes from the same limit.
    const size_t limit = placement_->limit();
    const size_t left = limit - std::min(limit, small_);
    (void)placement_->Lower(std::max(left, placement_->figures().extent));
    const double fragmentation = placement_->FragmentationFor(request.bytes);
    const auto offset = placement_->Allocate(request);
    (void)placement_->Grow(limit - placement_->limit());
    if (offset) {
      fragmentation_sum_ += fragmentation;
      ++fragmentation_of_;
      Note();
    }
    return offset;
  }

  void Free(size_t offset, size_t bytes) {
    if (offset == kSmallOffset) {
      small_ -= bytes;
    } else if (!placement_->Free(offset)) {
      figures_.failed_block = 0;  // a replay that frees what it has not is wrong
    }
  }

  bool CommitBeta() {
    if (beta_ == 0) {
      return false;
    }
    ++figures_.shortages;
    return placement_->Grow(std::exchange(beta_, 0));
  }

  // On average of what was placed, just before.
  double fragmentation() const {
    return fragmentation_of_ == 0 ? 0 : fragmentation_sum_ / static_cast<double>(fragmentation_of_);
  }

  // Begins a new highest point.
  ReplayPoint TakePoint() {
    const ReplayPoint point = std::exchange(highest_, ReplayPoint());
    Note();
    return point;
  }

 private:
  static constexpr size_t kSmallOffset = static_cast<size_t>(-1);

  void Note() {
    const size_t live = placement_->figures().live + small_;
    const size_t occupied = placement_->figures().occupied + small_;
    highest_ = {std::max(highest_.live, live), std::max(highest_.occupied, occupied)};
    figures_.peak_live = std::max(figures_.peak_live, live);
    figures_.peak_occupied = std::max(figures_.peak_occupied, occupied);
    constexpr size_t kGranule = Placement::kGranularity;
    const size_t granules = (placement_->figures().extent + small_ + kGranule - 1) / kGranule;
    figures_.extent = std::max(figures_.extent, granules * kGranule);
  }

  const std::unique_ptr<Placement> placement_;
  size_t beta_;
  size_t small_ = 0;
  ReplayPoint highest_;
  double fragmentation_sum_ = 0;
  int64_t fragmentation_of_ = 0;
  ReplayFigures& figures_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_REPLAY_POOL_H_
