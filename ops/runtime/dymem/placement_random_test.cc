// Placements are held against a naive model of the same rules, at random requests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "ops/runtime/dymem/placement.h"

namespace trepak {
namespace {

constexpr size_t kGranule = Placement::kGranularity;
constexpr size_t kLimit = 400 * kGranule;
constexpr size_t kMaximalLimit = 600 * kGranule;
constexpr int kSteps = 10'000;

// Knows which blocks are live, and recounts everything from them alone.
class Model {
 public:
  explicit Model(PoolKind kind) : kind_(kind) {}

  struct Live {
    size_t bytes;
    size_t region;
  };

  struct Hole {
    size_t offset;
    size_t bytes;
    size_t region;
  };

  // By offset.
  std::map<size_t, Live> live;

  // Which region an offset is in, at the time when a block came there. A stray is in the region
  // whose blocks it lies among.
  size_t RegionOf(size_t offset) const {
    if (kind_ != PoolKind::kGtbm) {
      return 0;
    }
    return offset >= kMaximalLimit ? 2 : offset < LowEnd() ? 0 : 1;
  }

  size_t Extent() const { return LowEnd() + (kMaximalLimit - HighBegin()) + IncrementalExtent(); }

  size_t Occupied() const {
    return kind_ == PoolKind::kGtbm || live.empty() ? Extent() : LowEnd() - live.begin()->first;
  }

  size_t LiveBytes() const {
    size_t bytes = 0;
    for (const auto& [offset, block] : live) {
      bytes += block.bytes;
    }
    return bytes;
  }

  // By region. A region's holes are between its blocks and before its first.
  std::vector<Hole> Holes() const {
    std::vector<Hole> holes;
    const size_t starts[] = {0, HighBegin(), kMaximalLimit};
    const size_t ends[] = {LowEnd(), kMaximalLimit, kMaximalLimit + IncrementalExtent()};
    for (size_t region = 0; region < 3; ++region) {
      size_t at = starts[region];
      for (const auto& [offset, block] : live) {
        if (block.region == region) {
          holes.push_back({at, offset - at, region});
          at = offset + block.bytes;
        }
      }
      holes.push_back({at, ends[region] - at, region});
    }
    const auto is_none = [](const Hole& hole) { return hole.bytes == 0; };
    holes.erase(std::remove_if(holes.begin(), holes.end(), is_none), holes.end());
    return holes;
  }

  // Where a block has to be in a region that grows up; nothing if it is no place for it.
  std::optional<size_t> Expected(size_t bytes, size_t region, size_t rest) const {
    std::optional<Hole> found;
    const auto improve = [&](const Hole& hole) {
      const bool is_smaller = kind_ != PoolKind::kFirstFit && found && hole.bytes < found->bytes;
      if (hole.region == region && hole.bytes >= bytes && (!found || is_smaller)) {
        found = hole;
      }
    };
    for (const Hole& hole : Holes()) {
      improve(hole);
    }
    if (kind_ == PoolKind::kBestFit || !found) {
      improve({region == 2 ? kMaximalLimit + IncrementalExtent() : LowEnd(), rest, region});
    }
    return found ? std::optional(found->offset) : std::nullopt;
  }

 private:
  size_t LowEnd() const {
    size_t end = 0;
    for (const auto& [offset, block] : live) {
      end = block.region == 0 ? offset + block.bytes : end;
    }
    return end;
  }
  size_t HighBegin() const {
    for (const auto& [offset, block] : live) {
      if (block.region == 1) {
        return offset;
      }
    }
    return kMaximalLimit;
  }
  size_t IncrementalExtent() const {
    return live.empty() || live.rbegin()->second.region != 2
               ? 0
               : live.rbegin()->first + live.rbegin()->second.bytes - kMaximalLimit;
  }

  PoolKind kind_;
};

class PlacementRandomTest : public testing::TestWithParam<std::tuple<PoolKind, int>> {
 protected:
  PlacementRandomTest()
      : kind_(std::get<0>(GetParam())),
        random_(static_cast<uint32_t>(std::get<1>(GetParam()))),
        placement_(Placement::Make(kind_, kLimit, kMaximalLimit)),
        model_(kind_) {}

  size_t Random(size_t below) { return random_() % below; }

  // Mostly small, as tensors are.
  size_t RandomBytes() { return Random(Random(4) == 0 ? 60 * kGranule : 6 * kGranule); }

  void Allocate() {
    const auto mobility = static_cast<Mobility>(Random(3));
    const size_t asked = RandomBytes();
    const size_t bytes = std::max(kGranule, (asked + kGranule - 1) / kGranule * kGranule);
    size_t region = kind_ == PoolKind::kGtbm ? static_cast<size_t>(mobility) : 0;
    const std::vector<Model::Hole> holes = model_.Holes();
    const size_t rest = placement_->limit() - model_.Extent();
    const bool fits =
        bytes <= rest || std::any_of(holes.begin(), holes.end(),
                                     [&](const Model::Hole& hole) { return hole.bytes >= bytes; });
    const auto expected = model_.Expected(bytes, region, rest);
    const size_t strays = placement_->figures().strays;
    const auto offset = placement_->Allocate({asked, mobility, static_cast<int>(Random(5))});
    ASSERT_EQ(offset.has_value(), fits);
    if (region != 1 && expected) {
      ASSERT_EQ(offset, expected);
    }
    if (!offset) {
      return;
    }
    ASSERT_EQ(*offset % kGranule, 0U);
    ASSERT_LE(*offset + bytes, placement_->offsets());
    // Nothing overlaps.
    const auto next = model_.live.lower_bound(*offset);
    ASSERT_TRUE(next == model_.live.end() || *offset + bytes <= next->first);
    if (next != model_.live.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, *offset);
    }
    if (placement_->figures().strays > strays) {
      ASSERT_NE(model_.RegionOf(*offset), region);
      ASSERT_LT(rest, bytes);
      region = model_.RegionOf(*offset);
    }
    model_.live.emplace(*offset, Model::Live{bytes, region});
  }

  void Free() {
    auto chosen = model_.live.begin();
    std::advance(chosen, Random(model_.live.size()));
    ASSERT_FALSE(placement_->Free(chosen->first + 1));
    ASSERT_TRUE(placement_->Free(chosen->first));
    ASSERT_FALSE(placement_->Free(chosen->first));
    model_.live.erase(chosen);
  }

  void MoveLimit() {
    const size_t before = placement_->limit();
    const size_t units = Random(40) * kGranule;
    if (Random(2) == 0) {
      const bool grows = before + units <= kMaximalLimit;
      ASSERT_EQ(placement_->Grow(units), grows);
      ASSERT_EQ(placement_->limit(), grows ? before + units : before);
    } else {
      const bool lowers = before >= units && before - units >= model_.Extent();
      ASSERT_EQ(before >= units && placement_->Lower(before - units), lowers);
      ASSERT_EQ(placement_->limit(), lowers ? before - units : before);
    }
  }

  void Check() {
    const Placement::Figures& figures = placement_->figures();
    ASSERT_EQ(figures.live, model_.LiveBytes());
    ASSERT_EQ(figures.extent, model_.Extent());
    ASSERT_EQ(figures.occupied, model_.Occupied());
    ASSERT_LE(figures.extent, placement_->limit());
    live_peak_ = std::max(live_peak_, figures.live);
    extent_peak_ = std::max(extent_peak_, figures.extent);
    occupied_peak_ = std::max(occupied_peak_, figures.occupied);
    ASSERT_EQ(figures.live_peak, live_peak_);
    ASSERT_EQ(figures.extent_peak, extent_peak_);
    ASSERT_EQ(figures.occupied_peak, occupied_peak_);
  }

  // The map has the live blocks and the holes of the model, and free memory is what is not live.
  void CheckMap() {
    std::vector<size_t> holes;
    for (const Model::Hole& hole : model_.Holes()) {
      holes.push_back(hole.bytes);
    }
    if (placement_->limit() > model_.Extent()) {
      holes.push_back(placement_->limit() - model_.Extent());
    }
    std::vector<size_t> found;
    size_t live = 0;
    for (const auto& block : placement_->Map()) {
      if (block.is_live) {
        const auto known = model_.live.find(block.offset);
        ASSERT_NE(known, model_.live.end());
        ASSERT_EQ(known->second.bytes, block.bytes);
        ++live;
      } else {
        found.push_back(block.bytes);
      }
    }
    ASSERT_EQ(live, model_.live.size());
    std::sort(holes.begin(), holes.end());
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, holes);
    const size_t asked = 1 + Random(60 * kGranule);
    size_t free = 0;
    size_t usable = 0;
    for (const size_t hole : holes) {
      free += hole;
      usable += hole >= asked ? hole : 0;
    }
    ASSERT_EQ(free, placement_->limit() - model_.LiveBytes());
    const double expected = free == 0 ? 0 : 1 - static_cast<double>(usable) / free;
    ASSERT_NEAR(placement_->FragmentationFor(asked), expected, 1e-12);
  }

  const PoolKind kind_;
  std::mt19937 random_;
  std::unique_ptr<Placement> placement_;
  Model model_;
  size_t live_peak_ = 0;
  size_t extent_peak_ = 0;
  size_t occupied_peak_ = 0;
};

TEST_P(PlacementRandomTest, KeepsItsRules) {
  size_t failures = 0;
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t before = placement_->figures().allocations;
    if (Random(100) == 0) {
      ASSERT_NO_FATAL_FAILURE(MoveLimit()) << "step " << step;
    } else if (model_.live.empty() || Random(20) < (step / 500 % 2 == 0 ? 11 : 8)) {
      ASSERT_NO_FATAL_FAILURE(Allocate()) << "step " << step;
      failures += placement_->figures().allocations == before ? 1 : 0;
    } else {
      ASSERT_NO_FATAL_FAILURE(Free()) << "step " << step;
    }
    ASSERT_NO_FATAL_FAILURE(Check()) << "step " << step;
    if (step % 20 == 0) {
      ASSERT_NO_FATAL_FAILURE(CheckMap()) << "step " << step;
    }
  }
  EXPECT_GT(failures, 0U);  // the limit was reached
  EXPECT_EQ(placement_->figures().strays > 0, kind_ == PoolKind::kGtbm);
  while (!model_.live.empty()) {
    ASSERT_NO_FATAL_FAILURE(Free());
    ASSERT_NO_FATAL_FAILURE(Check());
  }
  EXPECT_EQ(placement_->figures().extent, 0U);
  const auto map = placement_->Map();
  ASSERT_EQ(map.size(), 1U);
  EXPECT_EQ(map[0].bytes, placement_->limit());
  EXPECT_FALSE(map[0].is_live);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, PlacementRandomTest,
                         testing::Combine(testing::Values(PoolKind::kBestFit, PoolKind::kFirstFit,
                                                          PoolKind::kGtbm),
                                          testing::Range(1, 6)));

}  // namespace
}  // namespace trepak
