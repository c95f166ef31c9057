// Which rows of a shard are trained for themselves.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ADMISSION_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ADMISSION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trepak {

// A row that has been seen less than min_count times is not admitted: the shard's default row,
// which stands behind all others, is looked up and trained in its place. What is rare would learn
// nothing alone; together it learns what an id means of which nothing is known.
//
// A row is seen once for each rank's batch that is trained and asks for it. Two bytes for a row.
// Thread safety: needs outside locking; const methods may be called from many threads at once.
class EmbeddingAdmission {
 public:
  static constexpr int64_t kMostCount = UINT16_MAX;

  // Admits all.
  EmbeddingAdmission() = default;

  // `rows`: of the shard, without the default row. `limit`: on rows that are admitted; 0: none.
  EmbeddingAdmission(int64_t rows, int64_t min_count, int64_t limit)
      : rows_(rows), min_count_(static_cast<uint16_t>(min_count)), limit_(limit) {
    seen_.resize(static_cast<size_t>(rows));
  }

  bool is_active() const { return min_count_ > 0; }
  int64_t default_row() const { return rows_; }
  int64_t limit() const { return limit_; }
  int64_t admitted() const { return admitted_; }
  bool IsOverLimit() const { return limit_ > 0 && admitted_ > limit_; }

  bool Admits(int64_t row) const { return seen_[static_cast<size_t>(row)] >= min_count_; }
  // The row that is looked up and trained.
  int64_t Resolve(int64_t row) const {
    return min_count_ == 0 || Admits(row) ? row : default_row();
  }

  void Count(int64_t row) {
    uint16_t& seen = seen_[static_cast<size_t>(row)];
    if (seen < min_count_ && ++seen == min_count_) {
      ++admitted_;
    }
  }
  // How often a row has been seen, up to min_count.
  uint16_t seen(int64_t row) const { return seen_[static_cast<size_t>(row)]; }
  // Sets it. What is no number is none.
  void Set(int64_t row, float seen) {
    admitted_ -= Admits(row) ? 1 : 0;
    seen_[static_cast<size_t>(row)] =
        static_cast<uint16_t>(seen > 0 ? std::min(seen, static_cast<float>(min_count_)) : 0.0F);
    admitted_ += Admits(row) ? 1 : 0;
  }
  // A row that is admitted starts afresh.
  void Drop(int64_t row) {
    seen_[static_cast<size_t>(row)] = 0;
    --admitted_;
  }

 private:
  int64_t rows_ = 0;
  uint16_t min_count_ = 0;
  int64_t limit_ = 0;
  int64_t admitted_ = 0;
  std::vector<uint16_t> seen_;  // up to min_count
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ADMISSION_H_
