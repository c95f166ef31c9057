// One region of a Placement: live blocks and the holes between them.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_REGION_H_
#define TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_REGION_H_

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "ops/runtime/dymem/placement.h"

namespace trepak {

// A block's position is its distance from the region's start, whichever way the region grows. So
// one that grows down follows the same rules as one that grows up, as its mirror image.
//
// Owns its books. Thread safety: none.
class PlacementRegion {
 public:
  struct Hole {
    size_t position;
    size_t bytes;
    int below;  // references of the live block that it lies on
  };

  // Begins at offset `start`.
  PlacementRegion(size_t start, bool grows_down) : start_(start), grows_down_(grows_down) {}

  // Where its last live block ends; 0 if there is none.
  size_t extent() const { return extent_; }
  // Before its first live block.
  size_t first_hole_bytes() const;

  // The smallest hole that fits; of several, the first.
  std::optional<Hole> BestFit(size_t bytes) const;
  // The first hole that fits.
  std::optional<Hole> FirstFit(size_t bytes) const;
  // The last hole that fits and lies on a block with at least so many references, or on the start;
  // if there is none, the first hole that fits.
  std::optional<Hole> OrderedFit(size_t bytes, int references) const;

  // Puts a block at the beginning of the hole at `position`, or at the extent. Returns its offset.
  size_t Take(size_t position, size_t bytes, const Placement::Request& request);
  // Returns how many bytes were freed; 0 if no live block begins at this offset, which is one on
  // the side of the start to which the region grows.
  size_t Free(size_t offset);

  // Appends its blocks, in any order.
  void List(std::vector<Placement::Block>* blocks) const;

  // By position; no two adjoin, and none is behind the last live block.
  const std::vector<Hole>& holes() const { return holes_; }

 private:
  struct LiveBlock {
    size_t bytes;
    Mobility mobility;
    int references;
  };
  std::map<size_t, LiveBlock>::iterator FindLive(size_t offset);
  size_t Offset(size_t position, size_t bytes) const {
    return grows_down_ ? start_ - position - bytes : start_ + position;
  }
  std::vector<Hole>::iterator FindHole(size_t position);

  size_t start_;
  bool grows_down_;
  size_t extent_ = 0;
  std::map<size_t, LiveBlock> live_;  // by position
  // Every search looks at all holes, as CNMeM's does. In a vector this is faster than trees are,
  // since the tensors of a training step are thousands, not millions.
  std::vector<Hole> holes_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_REGION_H_
