// The way to rows, whatever memory they lie in.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ACCESS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ACCESS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_requests.h"
#include "ops/runtime/sven/embedding_rows.h"

namespace trepak {

enum class RowAccess {
  kRead,
  kUpdate,  // rows are changed, and none is there twice
  kSet,     // the same, of rows one behind the other, which mostly are new
};

inline std::vector<int64_t> RowsFrom(int64_t first, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

// Copies of rows in memory, of which some may lie on a device. Thread safety: none.
class StagedRows {
 public:
  explicit StagedRows(const EmbeddingRows& rows) : rows_(rows) {}

  // Copies rows of both tiers.
  Status Load(Span<int64_t> rows) {
    const size_t record = rows_.record();
    values_.resize(rows.size * record);
    on_device_.resize(rows.size * record);
    places_.assign(rows.size, kRowIsHome);
    numbers_.clear();
    slots_.clear();
    for (size_t i = 0; i < rows.size; ++i) {
      numbers_.push_back(static_cast<int64_t>(i));
      if (rows_.IsFast(rows.data[i])) {
        places_[i] = static_cast<uint32_t>(slots_.size());
        slots_.push_back(rows_.SlotOf(rows.data[i]));
      } else {
        std::memcpy(values_.data() + i * record, rows_.Row(rows.data[i]), rows_.record_bytes());
      }
    }
    return rows_.ReadSlots({slots_.data(), slots_.size()}, on_device_.data());
  }

  // Copies them back, which have been loaded last.
  Status Store(Span<int64_t> rows) const {
    // First what may fail.
    TREPAK_RETURN_IF_ERROR(rows_.WriteSlots({slots_.data(), slots_.size()}, on_device_.data()));
    const size_t record = rows_.record();
    for (size_t i = 0; i < rows.size; ++i) {
      if (places_[i] == kRowIsHome) {
        std::memcpy(rows_.Row(rows.data[i]), values_.data() + i * record, rows_.record_bytes());
      }
    }
    return OkStatus();
  }

  // What looks like rows 0, 1, …: those that have been loaded.
  RowView<true> view() {
    return {values_.data(), on_device_.data(), places_.data(), rows_.record()};
  }
  Span<int64_t> numbers() const { return {numbers_.data(), numbers_.size()}; }

 private:
  const EmbeddingRows& rows_;
  std::vector<float> values_;     // by number, of rows at home
  std::vector<float> on_device_;  // one behind the other
  std::vector<uint32_t> places_;  // by number: its place in on_device_, or kRowIsHome
  std::vector<int32_t> slots_;    // by place in on_device_
  std::vector<int64_t> numbers_;
};

// Calls `use` with a view and the rows' numbers in it, block by block: view.Row(number) is the
// record of a row. Of rows in a file those of a block are read at once, which a disk does sooner
// than one after the other; a block is small enough that its pages stay in memory until they are
// used. Rows that lie on a device come to memory for it, and go back if they are to change.
//
// Rows must have places. Fails if the device does; then rows of earlier blocks have changed.
template <typename Use>
Status AccessRows(const EmbeddingRows& all, Span<int64_t> rows, RowAccess access, const Use& use) {
  constexpr size_t kAtOnce = 1024;
  if (!all.has_tiers()) {
    all.Visit([&](const auto& view) { use(view, rows); });
    return OkStatus();
  }
  StagedRows staged(all);
  for (size_t begin = 0; begin < rows.size; begin += kAtOnce) {
    const Span<int64_t> block{rows.data + begin, std::min(kAtOnce, rows.size - begin)};
    if (access != RowAccess::kSet) {  // of which little is on the disk
      all.WillNeed(block.data, block.size);
    }
    if (!all.is_on_device()) {
      all.Visit([&](const auto& view) { use(view, block); });
      continue;
    }
    TREPAK_RETURN_IF_ERROR(staged.Load(block));
    use(staged.view(), staged.numbers());
    if (access != RowAccess::kRead) {
      TREPAK_RETURN_IF_ERROR(staged.Store(block));
    }
  }
  return OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ACCESS_H_
