#include "ops/runtime/dymem/placement_region.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace trepak {
namespace {

// What the start of a region counts as: nothing outlives it.
constexpr int kStart = std::numeric_limits<int>::max();

}  // namespace

size_t PlacementRegion::first_hole_bytes() const {
  return holes_.empty() || holes_.begin()->first != 0 ? 0 : holes_.begin()->second.bytes;
}

std::optional<PlacementRegion::Hole> PlacementRegion::BestFit(size_t bytes) const {
  const auto hole = by_size_.lower_bound({bytes, 0});
  if (hole == by_size_.end()) {
    return std::nullopt;
  }
  return Hole{hole->second, hole->first};
}

std::optional<PlacementRegion::Hole> PlacementRegion::FirstFit(size_t bytes) const {
  auto fitting = by_size_.lower_bound({bytes, 0});
  if (fitting == by_size_.end()) {
    return std::nullopt;
  }
  // Two walks take turns. If many holes fit, the one by position soon meets the first of them. If
  // few do, the one by size has soon seen them all.
  auto hole = holes_.begin();
  size_t first = fitting->second;
  while (hole->second.bytes < bytes) {
    ++hole;
    first = std::min(first, fitting->second);
    if (++fitting == by_size_.end()) {
      hole = holes_.find(first);
    }
  }
  return Hole{hole->first, hole->second.bytes};
}

std::optional<PlacementRegion::Hole> PlacementRegion::OrderedFit(size_t bytes,
                                                                 int references) const {
  if (by_size_.empty() || by_size_.rbegin()->first < bytes) {
    return std::nullopt;
  }
  std::optional<Hole> first;
  for (auto hole = holes_.rbegin(); hole != holes_.rend(); ++hole) {
    if (hole->second.bytes >= bytes) {
      first = Hole{hole->first, hole->second.bytes};
      if (hole->second.below >= references) {
        break;
      }
    }
  }
  return first;
}

size_t PlacementRegion::Take(size_t position, size_t bytes, const Placement::Request& request) {
  if (position == extent_) {
    extent_ += bytes;
  } else {
    const auto hole = holes_.find(position);
    const size_t rest = hole->second.bytes - bytes;
    const auto next = Remove(hole);
    if (rest > 0) {
      holes_.emplace_hint(next, position + bytes, FreeBlock{rest, request.references});
      by_size_.emplace(rest, position + bytes);
    }
  }
  live_.emplace(position, LiveBlock{bytes, request.mobility, request.references});
  return Offset(position, bytes);
}

size_t PlacementRegion::Free(size_t offset) {
  const auto live = FindLive(offset);
  if (live == live_.end()) {
    return 0;
  }
  const size_t freed = live->second.bytes;
  size_t begin = live->first;
  size_t end = begin + freed;
  // Whether or not there is a hole between them.
  const int below = live == live_.begin() ? kStart : std::prev(live)->second.references;
  live_.erase(live);

  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == end) {
    end += next->second.bytes;
    next = Remove(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin) {
      begin = before->first;
      next = Remove(before);
    }
  }
  if (end == extent_) {
    extent_ = begin;
  } else {
    holes_.emplace_hint(next, begin, FreeBlock{end - begin, below});
    by_size_.emplace(end - begin, begin);
  }
  return freed;
}

void PlacementRegion::List(std::vector<Placement::Block>* blocks) const {
  for (const auto& [position, live] : live_) {
    blocks->push_back({Offset(position, live.bytes), live.bytes, true, live.mobility});
  }
  for (const auto& [position, hole] : holes_) {
    blocks->push_back({Offset(position, hole.bytes), hole.bytes, false, Mobility::kMovable});
  }
}

std::map<size_t, PlacementRegion::LiveBlock>::iterator PlacementRegion::FindLive(size_t offset) {
  if (!grows_down_) {
    return offset < start_ ? live_.end() : live_.find(offset - start_);
  }
  // The block whose last position is at its offset.
  const size_t end = start_ - offset;
  auto live = live_.lower_bound(end);
  if (offset > start_ || live == live_.begin()) {
    return live_.end();
  }
  --live;
  return live->first + live->second.bytes == end ? live : live_.end();
}

PlacementRegion::Holes::iterator PlacementRegion::Remove(Holes::iterator hole) {
  by_size_.erase({hole->second.bytes, hole->first});
  return holes_.erase(hole);
}

}  // namespace trepak
