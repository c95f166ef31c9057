#include "ops/runtime/sven/embedding_rows.h"

#include <sys/mman.h>

#include <cerrno>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

namespace trepak {

EmbeddingRows::EmbeddingRows(EmbeddingRows&& other) noexcept
    : values_(std::exchange(other.values_, nullptr)),
      record_(std::exchange(other.record_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

EmbeddingRows& EmbeddingRows::operator=(EmbeddingRows&& other) noexcept {
  std::swap(values_, other.values_);
  std::swap(record_, other.record_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

EmbeddingRows::~EmbeddingRows() {
  if (values_ != nullptr) {
    munmap(values_, bytes_);
  }
}

Status EmbeddingRows::Make(int64_t rows, size_t record, EmbeddingRows* made) {
  EmbeddingRows taken;
  taken.record_ = record;
  const size_t row = record * sizeof(float);
  if (static_cast<uint64_t>(rows) > std::numeric_limits<size_t>::max() / 2 / row) {
    return ResourceExhaustedError(std::to_string(rows) + " rows are too many");
  }
  const size_t bytes = static_cast<size_t>(rows) * row;
  if (bytes > 0) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return ResourceExhaustedError("no memory for " + std::to_string(bytes) +
                                    " bytes: " + std::generic_category().message(errno));
    }
    // Rows are touched in no order: with small pages each would also miss the table of pages.
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    taken.values_ = static_cast<float*>(memory);
    taken.bytes_ = bytes;
  }
  *made = std::move(taken);
  return OkStatus();
}

}  // namespace trepak
