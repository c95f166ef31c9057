// Where tensors lie in a pool of memory (thesis, sections 2.1.3.2 and 4.1.3).

#ifndef TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_H_
#define TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace trepak {

class PlacementRegion;

// How long a tensor stays, by the classes of Algorithm 4.
enum class Mobility {
  kMovable,    // one layer reads it next; then it goes
  kTemporary,  // several layers read it, or it waits to be joined
  kReclaimed,  // it is small and is never offloaded
};

enum class PoolKind {
  kBestFit,   // CNMeM's rules, which vDNN uses
  kFirstFit,  // the rules of SuperNeurons' released pool
  kGtbm,      // Group Tensors By Mobility
};

// Gives out offsets below a limit and takes them back. It touches no memory, so a replay can use a
// pool that no machine here has.
//
// A region is a run of offsets that grows from one end. It holds live blocks and the holes between
// them, and it ends with its last live block: when that is freed, the region shrinks. Its extent is
// how long it is, holes included. The sum of all extents never exceeds the limit.
//
// - Best-fit: one region, from 0 up. As in CNMeM, the smallest free block that fits is used, and
//   the lowest of several; what is above the region is a free block too.
// - First-fit: one region, from 0 up. The lowest free block that fits is used.
// - GTBM: three regions. Movable tensors lie from 0 up, temporary ones from the maximal limit down,
//   reclaimed ones from the maximal limit up; the last is the thesis's incremental space. Offsets
//   cost nothing, memory does: the regions have more offsets than they need, so that any of them
//   may take what the limit leaves. A tensor takes a hole of its own region (see below), or else
//   extends that region. If neither is possible, it takes the smallest hole that fits of the other
//   regions, and counts as a stray.
//
// Movable and reclaimed tensors take the smallest hole that fits, the one nearest to their region's
// start if there are several. Temporary ones keep an order. The thesis allocates those with more
// references first, so that they can be freed in the opposite order; a pool that sees one request
// at a time does it by choosing where to put them. A temporary tensor is put on top of one that has
// at least as many references, or on the start of the region: "on top" is on the side of the
// frontier, to which the region grows. Of such holes it takes the one nearest to the frontier.
// Where there is none, it takes the hole farthest from the frontier. So one with the most
// references goes as deep as it can and doesn't pin the frontier, and one with few references
// leaves the deep holes to others.
//
// Owns nothing but its books. Thread safety: none; the owner locks.
class Placement {
 public:
  static constexpr size_t kGranularity = 512;  // CNMeM's; requests are rounded up to it

  struct Request {
    size_t bytes = 0;  // an empty tensor has an offset of its own, so it takes one granule
    Mobility mobility = Mobility::kMovable;
    int references = 1;  // how many layers read it
  };

  struct Block {
    size_t offset = 0;
    size_t bytes = 0;
    bool is_live = false;
    Mobility mobility = Mobility::kMovable;  // of a live block
  };

  // Bytes are of rounded requests. Peaks are since the last ResetPeaks().
  struct Figures {
    size_t live = 0;
    size_t live_peak = 0;
    // What the thesis calls used (section 4.3.4). Best-fit and first-fit: from the lowest live
    // block to the end of the highest one. GTBM: the sum of all extents.
    size_t occupied = 0;
    size_t occupied_peak = 0;
    // The sum of all extents. With the peak as its limit, a pool serves the same requests in the
    // same way, unless it is best-fit, whose choice depends on how much is free above the region.
    size_t extent = 0;
    size_t extent_peak = 0;
    size_t main_peak = 0;      // of the extents without the incremental space's
    uint64_t allocations = 0;  // that succeeded, since the start
    uint64_t strays = 0;       // of these
  };

  // Limits are rounded down to whole granules. `maximal_limit`: how far Grow() may go; at least
  // `limit`. It must be at most half of what a size_t counts.
  static std::unique_ptr<Placement> Make(PoolKind kind, size_t limit, size_t maximal_limit = 0);

  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Returns the offset, a multiple of kGranularity. Nothing: no hole is large enough, and the limit
  // leaves no room to extend a region.
  [[nodiscard]] std::optional<size_t> Allocate(const Request& request);

  // Finds the block in O(log n). Returns false, and changes nothing, unless a live block begins
  // there.
  [[nodiscard]] bool Free(size_t offset);

  // Raises the limit in place: offsets that were given stay valid. Returns false, and changes
  // nothing, if that exceeds the maximal limit.
  [[nodiscard]] bool Grow(size_t bytes);

  // Lowers the limit, unless it is lower already. Returns false, and changes nothing, if the
  // regions extend over more now. Offsets stay what they were, so Grow() can take it back.
  [[nodiscard]] bool Lower(size_t limit);

  // The memory that was in no region at any time since the last ResetPeaks(). The thesis measures
  // it between the low and the high region; here the incremental space takes from the same limit,
  // so what it takes is no gap. Lower(limit() - squeeze_gap() + beta) is the thesis's mem_size.
  // 0 if the limit is lower than it was at the peak.
  size_t squeeze_gap() const { return limit_ - std::min(limit_, figures_.extent_peak); }

  const Figures& figures() const { return figures_; }
  void ResetPeaks();

  PoolKind kind() const { return kind_; }
  size_t limit() const { return limit_; }
  size_t maximal_limit() const { return maximal_limit_; }

  // Where offsets end: memory for all that can be given has this length.
  size_t offsets() const { return kind_ == PoolKind::kGtbm ? 2 * maximal_limit_ : maximal_limit_; }

  // Equation 4.1, in bytes: which part of the free memory is in blocks too small for a request. The
  // equation knows only powers of two. If 400 were rounded up to one, a free block of 500 would be
  // of no use to it; if it were rounded down, one of 300 would be. So a block is usable here if the
  // request fits, which for powers of two is the same. 0 if nothing is free.
  double FragmentationFor(size_t bytes) const;

  // All blocks by offset, for reports of errors. What the limit leaves to all regions is one free
  // block, which begins at the end of the first region; its bytes are memory, not offsets.
  std::vector<Block> Map() const;

 private:
  // Where a block can be put, in the terms of PlacementRegion.
  struct Spot {
    PlacementRegion* region;
    size_t position;
    bool is_stray;
  };

  Placement(PoolKind kind, size_t limit, size_t maximal_limit);

  std::optional<Spot> Find(size_t bytes, const Request& request);
  std::optional<Spot> FindStray(size_t bytes, const PlacementRegion& own);
  PlacementRegion& RegionOf(size_t offset);
  void Count();

  const PoolKind kind_;
  const size_t maximal_limit_;
  size_t limit_;
  std::vector<PlacementRegion> regions_;  // by Mobility; best-fit and first-fit have one
  Figures figures_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_PLACEMENT_H_
