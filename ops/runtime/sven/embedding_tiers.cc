#include "ops/runtime/sven/embedding_tiers.h"

#include <algorithm>

#include "ops/runtime/sven/embedding_hash.h"

namespace trepak {
namespace {

Status CheckHasTiers(const std::vector<EmbeddingRows>& rows) {
  const bool has = std::all_of(rows.begin(), rows.end(),
                               [](const EmbeddingRows& one) { return one.has_tiers(); });
  return has ? OkStatus()
             : FailedPreconditionError(
                   "rows can't be placed: all lie in memory; give the layer a folder= or a "
                   "device=, and fast_bytes=");
}

// Where the next shard's slots begin on a device.
size_t BehindSlots(const EmbeddingRows& rows, size_t begin, size_t slots) {
  constexpr size_t kAlignment = EmbeddingDevice::kAlignment;
  return rows.is_on_device()
             ? (begin + slots * rows.record() + kAlignment - 1) / kAlignment * kAlignment
             : 0;
}

}  // namespace

Status EmbeddingTiers::PlaceFirst(const TierOptions& tiers, std::vector<EmbeddingRows>* rows) {
  uint64_t bytes = 0;
  for (const EmbeddingRows& one : *rows) {
    bytes += one.bytes();
  }
  fast_bytes_ = tiers.fast_bytes;
  if (tiers.device != nullptr) {
    const size_t numbers = std::min(fast_bytes_, bytes) / sizeof(float);
    TREPAK_RETURN_IF_ERROR(
        tiers.device->Take(numbers + rows->size() * EmbeddingDevice::kAlignment));
  }
  const double share =
      bytes > 0 ? std::min(1.0, static_cast<double>(fast_bytes_) / static_cast<double>(bytes)) : 0;
  size_t begin = 0;
  for (EmbeddingRows& one : *rows) {
    const auto slots = static_cast<size_t>(share * static_cast<double>(one.rows()));
    TREPAK_RETURN_IF_ERROR(one.SetSlots(slots, begin));
    begin = BehindSlots(one, begin, slots);
    std::vector<bool> chosen(static_cast<size_t>(one.rows()));
    std::fill(chosen.begin(), chosen.begin() + static_cast<int64_t>(one.slots()), true);
    EmbeddingRows::Moves moves;  // nothing was anywhere before
    TREPAK_RETURN_IF_ERROR(one.Place(chosen, &moves));
  }
  return OkStatus();
}

Status EmbeddingTiers::Place(const RowPlacement& placement, std::vector<EmbeddingRows>* rows,
                             PlacedRows* placed) {
  *placed = PlacedRows();
  TREPAK_RETURN_IF_ERROR(CheckHasTiers(*rows));
  ChosenRows chosen;
  if (placement.is_random) {
    const auto key = [&](size_t shard, int64_t row) {
      const uint64_t number =
          SplitMix64(placement.seed ^ SplitMix64(shard)) ^ static_cast<uint64_t>(row);
      return static_cast<uint32_t>(SplitMix64(number) >> 32);
    };
    chosen = RowSelection(*rows, key, nullptr).Largest(fast_bytes_, true);
  } else if (scores_.is_active()) {
    const auto key = [&](size_t shard, int64_t row) { return scores_.Key(shard, row); };
    chosen = RowSelection(*rows, key, nullptr).Largest(fast_bytes_, true);
  } else {
    return FailedPreconditionError(
        "hot rows can't be placed: their accesses have not been counted");
  }
  TREPAK_RETURN_IF_ERROR(MoveAll(chosen, rows, placed));
  Sum(*rows, placed);
  return OkStatus();
}

Status EmbeddingTiers::MoveAll(const ChosenRows& chosen, std::vector<EmbeddingRows>* rows,
                               PlacedRows* placed) {
  std::vector<size_t> slots(rows->size());
  std::vector<size_t> begins(rows->size());
  size_t begin = 0;
  const auto stays = [&](size_t shard) {
    return (*rows)[shard].slots() == slots[shard] && (*rows)[shard].begin() == begins[shard];
  };
  for (size_t shard = 0; shard < rows->size(); ++shard) {
    EmbeddingRows& one = (*rows)[shard];
    begins[shard] = begin;
    slots[shard] =
        static_cast<size_t>(std::count(chosen[shard].begin(), chosen[shard].end(), true));
    begin = BehindSlots(one, begin, slots[shard]);
    if (!stays(shard)) {
      // All leave first, so that there is never more memory than the budget.
      TREPAK_RETURN_IF_ERROR(MoveShard(std::vector<bool>(chosen[shard].size()), &one, placed));
      TREPAK_RETURN_IF_ERROR(one.SetSlots(0));
    }
  }
  for (size_t shard = 0; shard < rows->size(); ++shard) {
    EmbeddingRows& one = (*rows)[shard];
    if (!stays(shard)) {
      TREPAK_RETURN_IF_ERROR(one.SetSlots(slots[shard], begins[shard]));
    }
    TREPAK_RETURN_IF_ERROR(MoveShard(chosen[shard], &one, placed));
  }
  return OkStatus();
}

Status EmbeddingTiers::MoveShard(const std::vector<bool>& chosen, EmbeddingRows* rows,
                                 PlacedRows* placed) {
  EmbeddingRows::Moves moves;
  TREPAK_RETURN_IF_ERROR(rows->Place(chosen, &moves));
  for (EmbeddingRows::Moves* const sum : {&placed->moves, &moves_}) {
    sum->in += moves.in;
    sum->out += moves.out;
  }
  return OkStatus();
}

Status EmbeddingTiers::Replace(std::vector<EmbeddingRows>* rows, PlacedRows* placed) {
  *placed = PlacedRows();
  TREPAK_RETURN_IF_ERROR(CheckHasTiers(*rows));
  if (!scores_.is_active()) {
    return FailedPreconditionError("rows can't be replaced: they have no scores");
  }
  const auto key = [&](size_t shard, int64_t row) { return scores_.Key(shard, row); };
  for (size_t shard = 0; shard < rows->size(); ++shard) {
    EmbeddingRows& one = (*rows)[shard];
    if (one.slots() > 0) {
      const ChosenRows chosen =
          RowSelection(*rows, key, &shard).Largest(one.slots() * one.record_bytes(), true);
      TREPAK_RETURN_IF_ERROR(MoveShard(chosen[shard], &one, placed));
    }
  }
  Sum(*rows, placed);
  return OkStatus();
}

Status EmbeddingTiers::Track(const RowScoring& scoring, const std::vector<EmbeddingRows>& rows) {
  std::vector<int64_t> counts;
  for (const EmbeddingRows& one : rows) {
    counts.push_back(one.rows());
  }
  by_importance_ = scoring.by_importance;
  return scores_.Begin(scoring.policy, scoring.decay, counts);
}

void EmbeddingTiers::Sum(const std::vector<EmbeddingRows>& rows, PlacedRows* placed) const {
  for (size_t shard = 0; shard < rows.size(); ++shard) {
    for (int64_t row = 0; row < rows[shard].rows(); ++row) {
      const double score = scores_.is_active() ? scores_.Of(shard, row) : 0;
      const bool is_fast = rows[shard].IsFast(row);
      ++placed->rows;
      placed->fast_rows += is_fast ? 1 : 0;
      placed->scores += score;
      placed->fast_scores += is_fast ? score : 0;
    }
  }
}

}  // namespace trepak
