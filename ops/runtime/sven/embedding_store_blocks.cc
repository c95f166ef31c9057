// Reads and writes blocks of a store's rows: initial values, files.

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/runtime/sven/embedding_access.h"
#include "ops/runtime/sven/embedding_store.h"

namespace trepak {

Status EmbeddingStore::FindRows(size_t number, int64_t first_row, int64_t count,
                                size_t* mine) const {
  const std::vector<uint32_t>& mines = plan_->shards_of(rank_);
  const auto found = std::find(mines.begin(), mines.end(), number);
  if (found == mines.end()) {
    return InvalidArgumentError("rank " + std::to_string(rank_) + " has no shard " +
                                std::to_string(number));
  }
  *mine = static_cast<size_t>(found - mines.begin());
  const int64_t rows = rows_[*mine].rows();
  if (first_row < 0 || count < 0 || first_row > rows || count > rows - first_row) {
    return InvalidArgumentError("shard " + std::to_string(number) + " has " + std::to_string(rows) +
                                " rows, not " + std::to_string(count) + " from " +
                                std::to_string(first_row) + " on");
  }
  return OkStatus();
}

Status EmbeddingStore::Width(size_t number, bool with_slots, size_t* width) const {
  size_t mine = 0;
  TREPAK_RETURN_IF_ERROR(FindRows(number, 0, 0, &mine));
  *width = plan_->WidthOf(number, with_slots);
  return OkStatus();
}

Status EmbeddingStore::Read(size_t number, int64_t first_row, int64_t count, bool with_slots,
                            float* values) const {
  size_t mine = 0;
  TREPAK_RETURN_IF_ERROR(FindRows(number, first_row, count, &mine));
  const size_t width = plan_->WidthOf(number, with_slots);
  const std::vector<int64_t> wanted = RowsFrom(first_row, count);
  const Span<int64_t> all{wanted.data(), wanted.size()};
  std::shared_lock<std::shared_mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(MakePlaces(mine, all));
  const EmbeddingAdmission& admission = admissions_[mine];
  const size_t copied = std::min(width, rows_[mine].record());
  return AccessRows(rows_[mine], all, RowAccess::kRead,
                    [&](const auto& view, Span<int64_t> rows) {
                      for (const int64_t row : rows) {
                        std::memcpy(values, view.Row(row), copied * sizeof(float));
                        if (copied < width) {
                          const bool is_default = first_row == admission.default_row();
                          std::fill(values + copied, values + width,
                                    is_default ? 0.0F : admission.seen(first_row));
                        }
                        values += width;
                        ++first_row;
                      }
                    })
      .Annotate(NameOf(mine));
}

Status EmbeddingStore::Write(size_t number, int64_t first_row, int64_t count, bool with_slots,
                             const float* values) {
  size_t mine = 0;
  TREPAK_RETURN_IF_ERROR(FindRows(number, first_row, count, &mine));
  const size_t width = plan_->WidthOf(number, with_slots);
  const std::vector<int64_t> wanted = RowsFrom(first_row, count);
  const Span<int64_t> all{wanted.data(), wanted.size()};
  std::lock_guard<std::mutex> updating(updating_);  // sums resolve rows, before they are applied
  std::unique_lock<std::shared_mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(MakePlaces(mine, all));
  EmbeddingAdmission& admission = admissions_[mine];
  const size_t copied = std::min(width, rows_[mine].record());
  return AccessRows(rows_[mine], all, RowAccess::kSet,
                    [&](const auto& view, Span<int64_t> rows) {
                      for (const int64_t row : rows) {
                        std::memcpy(view.Row(row), values, copied * sizeof(float));
                        if (copied < width && first_row != admission.default_row()) {
                          admission.Set(first_row, values[copied]);
                        }
                        values += width;
                        ++first_row;
                      }
                    })
      .Annotate(NameOf(mine));
}

}  // namespace trepak
