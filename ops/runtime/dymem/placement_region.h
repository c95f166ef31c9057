// One region of a Placement: live blocks and the holes between them.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_REGION_H_
#define TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_REGION_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
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
  // Returns how many bytes were freed; 0 if no live block begins at this offset.
  size_t Free(size_t offset);

  // Appends its blocks, in any order.
  void List(std::vector<Placement::Block>* blocks) const;

  // Calls `use` with the bytes of each hole.
  template <typename Use>
  void ForHoles(const Use& use) const {
    for (const auto& [bytes, position] : by_size_) {
      use(bytes);
    }
  }

 private:
  struct LiveBlock {
    size_t bytes;
    Mobility mobility;
    int references;
  };
  struct FreeBlock {
    size_t bytes;
    int below;  // references of the live block that the hole lies on
  };
  using Holes = std::map<size_t, FreeBlock>;

  std::map<size_t, LiveBlock>::iterator FindLive(size_t offset);
  size_t Offset(size_t position, size_t bytes) const {
    return grows_down_ ? start_ - position - bytes : start_ + position;
  }
  Holes::iterator Remove(Holes::iterator hole);

  size_t start_;
  bool grows_down_;
  size_t extent_ = 0;
  std::map<size_t, LiveBlock> live_;             // by position
  Holes holes_;                                  // by position; no two adjoin, none is the last
  std::set<std::pair<size_t, size_t>> by_size_;  // the holes by bytes, then position
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_REGION_H_
