// Placements in units of one granule. For tests.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_UNITS_H_
#define TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_UNITS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/placement.h"

namespace trepak {

inline constexpr size_t kUnit = Placement::kGranularity;

// A placement whose sizes and offsets are in granules. Thread safety: none.
class Units {
 public:
  Units(PoolKind kind, size_t limit, size_t maximal_limit = 0)
      : placement_(Placement::Make(kind, limit * kUnit, maximal_limit * kUnit)) {}

  Placement* operator->() const { return placement_.get(); }

  // -1 if it doesn't fit.
  int64_t Take(size_t units, Mobility mobility = Mobility::kMovable, int references = 1) {
    const auto offset = placement_->Allocate({units * kUnit, mobility, references});
    return offset ? static_cast<int64_t>(*offset / kUnit) : -1;
  }
  int64_t TakeTemporary(size_t units, int references) {
    return Take(units, Mobility::kTemporary, references);
  }
  int64_t TakeReclaimed(size_t units) { return Take(units, Mobility::kReclaimed); }

  bool Free(int64_t offset) { return placement_->Free(static_cast<size_t>(offset) * kUnit); }
  bool Lower(size_t units) { return placement_->Lower(units * kUnit); }
  bool Grow(size_t units) { return placement_->Grow(units * kUnit); }

  size_t live() const { return placement_->figures().live / kUnit; }
  size_t occupied() const { return placement_->figures().occupied / kUnit; }
  size_t extent() const { return placement_->figures().extent / kUnit; }
  double FragmentationFor(size_t units) const {
    return placement_->FragmentationFor(units * kUnit);
  }

  // (offset, size) of each free block.
  std::vector<std::pair<size_t, size_t>> Holes() const {
    std::vector<std::pair<size_t, size_t>> holes;
    for (const auto& block : placement_->Map()) {
      if (!block.is_live) {
        holes.emplace_back(block.offset / kUnit, block.bytes / kUnit);
      }
    }
    return holes;
  }

 private:
  std::unique_ptr<Placement> placement_;
};

// Blocks at 0..9, 9..10, 10..12, 12..13, 13..16, 16..17, of which the first, third and fifth are
// freed.
inline void MakeHoles(Units* pool) {
  for (const size_t units : {9, 1, 2, 1, 3, 1}) {
    ASSERT_GE(pool->Take(units), 0);
  }
  for (const int64_t offset : {0, 10, 13}) {
    ASSERT_TRUE(pool->Free(offset));
  }
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_UNITS_H_
