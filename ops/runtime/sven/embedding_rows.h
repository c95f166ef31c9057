// The memory of one shard's rows.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROWS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "ops/runtime/net/status.h"

namespace trepak {

// Rows of which each is one record: weights, and behind them what the optimizer keeps, so that an
// update touches one place. Everybody finds rows through Row alone, whatever memory they lie in.
//
// Owns the memory. Thread safety: as an array's: threads may use different rows at once.
class EmbeddingRows {
 public:
  EmbeddingRows() = default;
  EmbeddingRows(EmbeddingRows&& other) noexcept;
  EmbeddingRows& operator=(EmbeddingRows&& other) noexcept;
  ~EmbeddingRows();

  // Takes memory, which is zero and costs nothing until it is touched. Fails if there is not
  // enough.
  static Status Make(int64_t rows, size_t record, EmbeddingRows* made);

  float* Row(int64_t row) const { return values_ + static_cast<size_t>(row) * record_; }

  // Numbers in a row.
  size_t record() const { return record_; }

  size_t bytes() const { return bytes_; }

  // Has the beginning of a row brought near, since it will be used soon.
  void Prefetch(int64_t row) const {
    constexpr size_t kLine = 64;      // bytes of a line of the cache
    constexpr size_t kMostLines = 4;  // the processor sees by itself that the rest follows
    const char* const begin = reinterpret_cast<const char*>(Row(row));
    const size_t bytes = record_ * sizeof(float);
    for (size_t line = 0; line < kMostLines * kLine && line < bytes; line += kLine) {
      __builtin_prefetch(begin + line, 1);
    }
  }

 private:
  float* values_ = nullptr;
  size_t record_ = 0;
  size_t bytes_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROWS_H_
