// What memory a store's rows lie in, which of them lie where, and which are admitted.

#include <algorithm>
#include <cstring>

#include "ops/runtime/sven/embedding_access.h"
#include "ops/runtime/sven/embedding_store.h"

namespace trepak {

Status EmbeddingStore::MakeRows(const TierOptions& tiers) {
  if (tiers.fast_bytes > 0 && !tiers.exist()) {
    return InvalidArgumentError(
        "fast_bytes= needs a folder= for the rows that don't fit into them, or a device= that has "
        "them");
  }
  rows_.resize(sums_.size());
  admissions_.resize(sums_.size());
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    const auto record =
        static_cast<size_t>(shard(mine).columns) * (1 + SlotsOf(table(mine).optimizer));
    int64_t rows = shard(mine).rows;
    if (table(mine).min_count > 0) {
      // A shard's part of the limit is its part of the rows.
      const double part = static_cast<double>(rows) / static_cast<double>(table(mine).vocabulary);
      const auto limit = static_cast<int64_t>(static_cast<double>(table(mine).row_limit) * part);
      admissions_[mine] =
          EmbeddingAdmission(rows, table(mine).min_count,
                             table(mine).row_limit == 0 ? 0 : std::max<int64_t>(limit, 1));
      ++rows;  // the default row
    }
    TREPAK_RETURN_IF_ERROR(
        (tiers.folder.empty() ? EmbeddingRows::Make(rows, record, &rows_[mine])
                              : EmbeddingRows::MakeInFile(rows, record, tiers.folder, &rows_[mine]))
            .Annotate(NameOf(mine)));
    rows_[mine].UseDevice(tiers.device);
  }
  if (tiers.exist()) {
    TREPAK_RETURN_IF_ERROR(tiers_.PlaceFirst(tiers, &rows_)
                               .Annotate("rank " + std::to_string(rank_) + ": embeddings"));
  }
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    TREPAK_RETURN_IF_ERROR(InitialiseRows(mine));
  }
  return Track({});
}

std::string EmbeddingStore::NameOf(size_t mine) const {
  return "rank " + std::to_string(rank_) + ": embedding table '" + table(mine).name + "'";
}

Status EmbeddingStore::InitialiseRows(size_t mine) {
  if (StartsAtZero(table(mine).optimizer)) {
    return OkStatus();
  }
  const auto columns = static_cast<size_t>(shard(mine).columns);
  constexpr int64_t kAtOnce = 1 << 16;
  for (int64_t first = 0; first < rows_[mine].rows(); first += kAtOnce) {
    const std::vector<int64_t> numbers =
        RowsFrom(first, std::min(kAtOnce, rows_[mine].rows() - first));
    const Span<int64_t> all{numbers.data(), numbers.size()};
    TREPAK_RETURN_IF_ERROR(MakePlaces(mine, all));
    const auto initialise = [&](const auto& view, Span<int64_t> rows) {
      for (const int64_t row : rows) {
        InitialiseSlots(table(mine).optimizer, columns, view.Row(row) + columns);
      }
    };
    TREPAK_RETURN_IF_ERROR(
        AccessRows(rows_[mine], all, RowAccess::kSet, initialise).Annotate(NameOf(mine)));
  }
  return OkStatus();
}

// The rows that are looked up where these are asked for; those that change are in `resolved`.
Span<int64_t> EmbeddingStore::Resolve(size_t mine, Span<int64_t> rows,
                                      std::vector<int64_t>* resolved) const {
  const EmbeddingAdmission& admission = admissions_[mine];
  if (!admission.is_active()) {
    return rows;
  }
  resolved->clear();
  for (const int64_t row : rows) {
    resolved->push_back(admission.Resolve(row));
  }
  return {resolved->data(), resolved->size()};
}

// Rows that are touched for the first time need disk.
Status EmbeddingStore::MakePlaces(size_t mine, Span<int64_t> rows) const {
  const EmbeddingRows& all = rows_[mine];
  if (all.HasAllPlaces()) {
    return OkStatus();
  }
  for (const int64_t row : rows) {
    if (!all.HasPlace(row)) {
      TREPAK_RETURN_IF_ERROR(all.MakePlace(row).Annotate(NameOf(mine)));
    }
  }
  return OkStatus();
}

// Counts the rows of a step that has trained. A row whose gradient has gone to the default row may
// be admitted by that; after it, it is looked up for itself.
Status EmbeddingStore::CountUpdate(const EmbeddingRequests& requests) {
  const bool has_scores = tiers_.counts_updates();
  if (has_scores) {
    tiers_.scores().BeginStep();
  }
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    EmbeddingAdmission& admission = admissions_[mine];
    if (!has_scores && !admission.is_active()) {
      continue;
    }
    for (size_t sender = 0; sender < plan_->ranks(); ++sender) {
      for (const int64_t row : requests.part(sender, mine).rows) {
        if (has_scores) {
          tiers_.scores().Count(mine, row, 1);
        }
        if (admission.is_active()) {
          admission.Count(row);
        }
      }
    }
    if (admission.IsOverLimit()) {
      TREPAK_RETURN_IF_ERROR(DropRows(mine).Annotate(NameOf(mine)));
    }
  }
  return OkStatus();
}

// Drops the rows with the lowest scores, an eighth more than there must be, so that it is seldom.
Status EmbeddingStore::DropRows(size_t mine) {
  EmbeddingAdmission& admission = admissions_[mine];
  EmbeddingRows& rows = rows_[mine];
  const auto key = [&](size_t at, int64_t row) -> uint32_t {
    const bool counts = row != admission.default_row() && admission.Admits(row);
    return counts ? std::max<uint32_t>(1, tiers_.scores().Key(at, row)) : 0;
  };
  const auto keep = static_cast<size_t>(admission.limit() - admission.limit() / 8);
  const ChosenRows chosen =
      RowSelection(rows_, key, &mine).Largest(keep * rows.record_bytes(), false);
  std::vector<int64_t> dropped;
  for (int64_t row = 0; row < admission.default_row(); ++row) {
    // Where the disk is full the row stays, and whoever looks it up is told.
    if (admission.Admits(row) && !chosen[mine][static_cast<size_t>(row)] &&
        rows.MakePlace(row).ok()) {
      dropped.push_back(row);
    }
  }
  TREPAK_RETURN_IF_ERROR(Restart(mine, dropped));
  for (const int64_t row : dropped) {
    admission.Drop(row);
    tiers_.scores().Forget(mine, row);
    ++rows_dropped_;
  }
  return OkStatus();
}

// Has rows start as the default row, which has been trained and so has its place.
Status EmbeddingStore::Restart(size_t mine, const std::vector<int64_t>& dropped) {
  const auto columns = static_cast<size_t>(shard(mine).columns);
  const int64_t default_row = admissions_[mine].default_row();
  std::vector<float> start(columns);
  const auto read = [&](const auto& view, Span<int64_t> rows) {
    std::memcpy(start.data(), view.Row(rows.data[0]), columns * sizeof(float));
  };
  TREPAK_RETURN_IF_ERROR(AccessRows(rows_[mine], {&default_row, 1}, RowAccess::kRead, read));
  return AccessRows(rows_[mine], {dropped.data(), dropped.size()}, RowAccess::kUpdate,
                    [&](const auto& view, Span<int64_t> rows) {
                      for (const int64_t row : rows) {
                        float* const record = view.Row(row);
                        std::memcpy(record, start.data(), columns * sizeof(float));
                        InitialiseSlots(table(mine).optimizer, columns, record + columns);
                      }
                    });
}

Status EmbeddingStore::Track(const RowScoring& scoring) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const bool needs_scores =
      std::any_of(admissions_.begin(), admissions_.end(),
                  [](const EmbeddingAdmission& one) { return one.limit() > 0; });
  RowScoring wanted = scoring;
  if (needs_scores && wanted.policy == RowPolicy::kNone) {
    wanted.policy = RowPolicy::kScore;  // what is dropped at a limit is what scores least
  }
  return tiers_.Track(wanted, rows_).Annotate("rank " + std::to_string(rank_));
}

Status EmbeddingStore::Place(const RowPlacement& placement, PlacedRows* placed) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  return tiers_.Place(placement, &rows_, placed).Annotate("rank " + std::to_string(rank_));
}

Status EmbeddingStore::Replace(PlacedRows* placed) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  return tiers_.Replace(&rows_, placed).Annotate("rank " + std::to_string(rank_));
}

Status EmbeddingStore::Score(const EmbeddingRequests& requests, Span<float> importance) {
  if (importance.size != requests.rows()) {
    return InvalidArgumentError("there are " + std::to_string(importance.size) +
                                " rows' importances, but the requests are for " +
                                std::to_string(requests.rows()) + " rows");
  }
  if (!std::all_of(importance.begin(), importance.end(),
                   [](float one) { return one >= 0 && one < 1e9F; })) {
    return InvalidArgumentError("a row's importance must be from 0 to 1e9");
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  if (!tiers_.counts_importance()) {
    return OkStatus();
  }
  tiers_.scores().BeginStep();
  const float* next = importance.data;
  for (size_t sender = 0; sender < plan_->ranks(); ++sender) {
    for (size_t mine = 0; mine < rows_.size(); ++mine) {
      for (const int64_t row : requests.part(sender, mine).rows) {
        tiers_.scores().Count(mine, row, *next++);
      }
    }
  }
  return OkStatus();
}

}  // namespace trepak
