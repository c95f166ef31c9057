#include "ops/runtime/dymem/placement.h"

#include <algorithm>

#include "ops/runtime/dymem/placement_region.h"

namespace trepak {
namespace {

constexpr size_t RoundedDown(size_t bytes) {
  return bytes / Placement::kGranularity * Placement::kGranularity;
}

// Of what is no more than a limit, so that it can't overflow.
constexpr size_t RoundedUp(size_t bytes) {
  return std::max(RoundedDown(bytes + Placement::kGranularity - 1), Placement::kGranularity);
}

size_t Index(Mobility mobility) { return static_cast<size_t>(mobility); }

}  // namespace

std::unique_ptr<Placement> Placement::Make(PoolKind kind, size_t limit, size_t maximal_limit) {
  return std::unique_ptr<Placement>(
      new Placement(kind, RoundedDown(limit), RoundedDown(std::max(limit, maximal_limit))));
}

Placement::Placement(PoolKind kind, size_t limit, size_t maximal_limit)
    : kind_(kind), maximal_limit_(maximal_limit), limit_(limit) {
  regions_.emplace_back(0, false);
  if (kind == PoolKind::kGtbm) {
    regions_.emplace_back(maximal_limit, true);
    regions_.emplace_back(maximal_limit, false);
  }
}

Placement::~Placement() = default;

std::optional<size_t> Placement::Allocate(const Request& request) {
  if (request.bytes > limit_) {
    return std::nullopt;
  }
  const size_t bytes = RoundedUp(request.bytes);
  const std::optional<Spot> spot = Find(bytes, request);
  if (!spot) {
    return std::nullopt;
  }
  const size_t offset = spot->region->Take(spot->position, bytes, request);
  figures_.live += bytes;
  ++figures_.allocations;
  figures_.strays += spot->is_stray ? 1 : 0;
  Count();
  return offset;
}

bool Placement::Free(size_t offset) {
  const size_t bytes = RegionOf(offset).Free(offset);
  if (bytes == 0) {
    return false;
  }
  figures_.live -= bytes;
  Count();
  return true;
}

bool Placement::Grow(size_t bytes) {
  if (RoundedDown(bytes) > maximal_limit_ - limit_) {
    return false;
  }
  limit_ += RoundedDown(bytes);
  return true;
}

bool Placement::Lower(size_t limit) {
  if (RoundedDown(limit) < figures_.extent) {
    return false;
  }
  limit_ = std::min(limit_, RoundedDown(limit));
  return true;
}

void Placement::ResetPeaks() {
  figures_.live_peak = figures_.occupied_peak = figures_.extent_peak = figures_.main_peak = 0;
  Count();
}

double Placement::FragmentationFor(size_t bytes) const {
  size_t free = 0;
  size_t usable = 0;
  const auto add = [&](size_t block) {
    free += block;
    usable += block >= bytes ? block : 0;
  };
  for (const PlacementRegion& region : regions_) {
    for (const PlacementRegion::Hole& hole : region.holes()) {
      add(hole.bytes);
    }
  }
  add(limit_ - figures_.extent);
  return free == 0 ? 0 : static_cast<double>(free - usable) / static_cast<double>(free);
}

std::vector<Placement::Block> Placement::Map() const {
  std::vector<Block> blocks;
  for (const PlacementRegion& region : regions_) {
    region.List(&blocks);
  }
  if (limit_ > figures_.extent) {
    blocks.push_back({regions_[0].extent(), limit_ - figures_.extent, false, Mobility::kMovable});
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const Block& a, const Block& b) { return a.offset < b.offset; });
  return blocks;
}

std::optional<Placement::Spot> Placement::Find(size_t bytes, const Request& request) {
  const size_t rest = limit_ - figures_.extent;
  PlacementRegion& own = regions_[kind_ == PoolKind::kGtbm ? Index(request.mobility) : 0];
  std::optional<PlacementRegion::Hole> hole;
  if (kind_ == PoolKind::kFirstFit) {
    hole = own.FirstFit(bytes);
  } else if (kind_ == PoolKind::kGtbm && request.mobility == Mobility::kTemporary) {
    hole = own.OrderedFit(bytes, request.references);
  } else {
    hole = own.BestFit(bytes);
  }
  // To CNMeM, what is above the region is a free block like others.
  const bool is_rest_better =
      kind_ == PoolKind::kBestFit && hole && bytes <= rest && rest < hole->bytes;
  if (hole && !is_rest_better) {
    return Spot{&own, hole->position, false};
  }
  if (bytes <= rest) {
    return Spot{&own, own.extent(), false};
  }
  return FindStray(bytes, own);
}

std::optional<Placement::Spot> Placement::FindStray(size_t bytes, const PlacementRegion& own) {
  std::optional<Spot> found;
  size_t smallest = 0;
  for (PlacementRegion& region : regions_) {
    const auto hole = &region == &own ? std::nullopt : region.BestFit(bytes);
    if (hole && (!found || hole->bytes < smallest)) {
      found = Spot{&region, hole->position, true};
      smallest = hole->bytes;
    }
  }
  return found;
}

PlacementRegion& Placement::RegionOf(size_t offset) {
  if (kind_ != PoolKind::kGtbm || offset < regions_[0].extent()) {
    return regions_[0];
  }
  return regions_[Index(offset < maximal_limit_ ? Mobility::kTemporary : Mobility::kReclaimed)];
}

void Placement::Count() {
  size_t main = regions_[0].extent();
  figures_.extent = main;
  figures_.occupied = main - regions_[0].first_hole_bytes();
  if (kind_ == PoolKind::kGtbm) {
    main += regions_[Index(Mobility::kTemporary)].extent();
    figures_.extent = main + regions_[Index(Mobility::kReclaimed)].extent();
    figures_.occupied = figures_.extent;
  }
  figures_.live_peak = std::max(figures_.live_peak, figures_.live);
  figures_.occupied_peak = std::max(figures_.occupied_peak, figures_.occupied);
  figures_.extent_peak = std::max(figures_.extent_peak, figures_.extent);
  figures_.main_peak = std::max(figures_.main_peak, main);
}

}  // namespace trepak
