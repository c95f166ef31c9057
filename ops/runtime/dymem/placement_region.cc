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
  return holes_.empty() || holes_.front().position != 0 ? 0 : holes_.front().bytes;
}

std::optional<PlacementRegion::Hole> PlacementRegion::BestFit(size_t bytes) const {
  const Hole* best = nullptr;
  for (const Hole& hole : holes_) {
    if (hole.bytes >= bytes && (best == nullptr || hole.bytes < best->bytes)) {
      best = &hole;
    }
  }
  return best == nullptr ? std::nullopt : std::optional<Hole>(*best);
}

std::optional<PlacementRegion::Hole> PlacementRegion::FirstFit(size_t bytes) const {
  for (const Hole& hole : holes_) {
    if (hole.bytes >= bytes) {
      return hole;
    }
  }
  return std::nullopt;
}

std::optional<PlacementRegion::Hole> PlacementRegion::OrderedFit(size_t bytes,
                                                                 int references) const {
  for (auto hole = holes_.rbegin(); hole != holes_.rend(); ++hole) {
    if (hole->bytes >= bytes && hole->below >= references) {
      return *hole;
    }
  }
  return FirstFit(bytes);
}

size_t PlacementRegion::Take(size_t position, size_t bytes, const Placement::Request& request) {
  if (position == extent_) {
    extent_ += bytes;
  } else {
    const auto hole = FindHole(position);
    if (hole->bytes == bytes) {
      holes_.erase(hole);
    } else {
      *hole = {position + bytes, hole->bytes - bytes, request.references};
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
  const size_t position = live->first;
  const size_t bytes = live->second.bytes;
  // Whether or not there is a hole between them.
  const int below = live == live_.begin() ? kStart : std::prev(live)->second.references;
  live_.erase(live);

  const auto next = FindHole(position);
  const auto before = next == holes_.begin() ? holes_.end() : std::prev(next);
  const bool joins_next = next != holes_.end() && next->position == position + bytes;
  const bool joins_before = before != holes_.end() && before->position + before->bytes == position;
  if (position + bytes == extent_) {
    extent_ = position;
    if (joins_before) {
      extent_ = before->position;
      holes_.pop_back();
    }
  } else if (joins_before) {
    before->bytes += bytes;
    if (joins_next) {
      before->bytes += next->bytes;
      holes_.erase(next);
    }
  } else if (joins_next) {
    *next = {position, bytes + next->bytes, below};
  } else {
    holes_.insert(next, {position, bytes, below});
  }
  return bytes;
}

void PlacementRegion::List(std::vector<Placement::Block>* blocks) const {
  for (const auto& [position, live] : live_) {
    blocks->push_back({Offset(position, live.bytes), live.bytes, true, live.mobility});
  }
  for (const Hole& hole : holes_) {
    blocks->push_back({Offset(hole.position, hole.bytes), hole.bytes, false, Mobility::kMovable});
  }
}

std::map<size_t, PlacementRegion::LiveBlock>::iterator PlacementRegion::FindLive(size_t offset) {
  if (!grows_down_) {
    return live_.find(offset - start_);
  }
  // The block whose last position is at its offset.
  const size_t end = start_ - offset;
  auto live = live_.lower_bound(end);
  if (live == live_.begin()) {
    return live_.end();
  }
  --live;
  return live->first + live->second.bytes == end ? live : live_.end();
}

// The first hole that is not before the position.
std::vector<PlacementRegion::Hole>::iterator PlacementRegion::FindHole(size_t position) {
  return std::lower_bound(holes_.begin(), holes_.end(), position,
                          [](const Hole& hole, size_t at) { return hole.position < at; });
}

}  // namespace trepak
