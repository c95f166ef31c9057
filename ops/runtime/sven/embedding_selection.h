// Which rows fit into the fast tier: those with the largest keys.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_SELECTION_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_SELECTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/runtime/sven/embedding_rows.h"

namespace trepak {

// By shard: which rows are chosen.
using ChosenRows = std::vector<std::vector<bool>>;

// Chooses rows by key. Keys are looked at in passes that count, since rows are too many to be
// sorted. Thread safety: none.
template <typename Key>
class RowSelection {
 public:
  // `key`: of a shard and a row, 32 bits. `only`: the shard that is chosen from; null: all.
  RowSelection(const std::vector<EmbeddingRows>& rows, const Key& key, const size_t* only)
      : rows_(rows), key_(key), only_(only) {}

  // Returns the rows with the largest keys, so many that no further one fits into the bytes. Of
  // those with one key the first ones come first; with `fast_first` those before them that lie in
  // the fast tier, so that few have to move.
  ChosenRows Largest(size_t bytes, bool fast_first) {
    chosen_.clear();
    for (size_t shard = 0; shard < rows_.size(); ++shard) {
      const bool is_looked_at = only_ == nullptr || *only_ == shard;
      chosen_.emplace_back(is_looked_at ? static_cast<size_t>(rows_[shard].rows()) : 0);
    }
    rest_ = bytes;
    above_ = 0;
    const uint32_t high = FindPart(16, 0, 0);
    const uint32_t threshold = high << 16 | FindPart(0, 0xFFFF0000, high << 16);
    ForAll([&](size_t shard, int64_t row) {
      if (key_(shard, row) > threshold) {
        Choose(shard, row);
      }
    });
    for (const bool is_fast : {true, false}) {
      ForAll([&](size_t shard, int64_t row) {
        if (key_(shard, row) == threshold && (fast_first && rows_[shard].IsFast(row)) == is_fast) {
          Choose(shard, row);
        }
      });
    }
    return std::move(chosen_);
  }

 private:
  // Of keys that are `under` in the bits of `mask`: finds in which 16 bits, from `shift` on, the
  // bytes are used up; 0 if they are not.
  uint32_t FindPart(int shift, uint32_t mask, uint32_t under) {
    std::vector<size_t> bytes(size_t{1} << 16);
    ForAll([&](size_t shard, int64_t row) {
      const uint32_t key = key_(shard, row);
      if ((key & mask) == under) {
        bytes[key >> shift & 0xFFFF] += rows_[shard].record_bytes();
      }
    });
    uint32_t part = 0xFFFF;
    while (part > 0 && above_ + bytes[part] <= rest_) {
      above_ += bytes[part--];
    }
    return part;
  }

  template <typename Use>
  void ForAll(const Use& use) const {
    for (size_t shard = only_ == nullptr ? 0 : *only_;
         shard < (only_ == nullptr ? rows_.size() : *only_ + 1); ++shard) {
      for (int64_t row = 0; row < rows_[shard].rows(); ++row) {
        use(shard, row);
      }
    }
  }

  void Choose(size_t shard, int64_t row) {
    if (rows_[shard].record_bytes() <= rest_) {
      rest_ -= rows_[shard].record_bytes();
      chosen_[shard][static_cast<size_t>(row)] = true;
    }
  }

  const std::vector<EmbeddingRows>& rows_;
  const Key& key_;
  const size_t* const only_;
  ChosenRows chosen_;
  size_t rest_ = 0;
  size_t above_ = 0;  // bytes of rows that have larger keys for certain
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_SELECTION_H_
