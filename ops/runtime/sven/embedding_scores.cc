#include "ops/runtime/sven/embedding_scores.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace trepak {

Status EmbeddingScores::Begin(RowPolicy policy, double decay, const std::vector<int64_t>& rows) {
  *this = EmbeddingScores();
  if (policy == RowPolicy::kNone) {
    return OkStatus();
  }
  if (policy == RowPolicy::kScore && !(decay > 0 && decay < 1)) {
    return InvalidArgumentError("the decay of rows' scores must be above 0 and below 1, is " +
                                std::to_string(decay));
  }
  for (const int64_t count : rows) {
    // Not a vector: this costs nothing for rows that never occur.
    const size_t size = std::max<size_t>(1, static_cast<size_t>(count));
    scores_.emplace_back(static_cast<float*>(std::calloc(size, sizeof(float))));
    if (scores_.back() == nullptr) {
      *this = EmbeddingScores();
      return ResourceExhaustedError("no memory for the scores of " + std::to_string(count) +
                                    " rows, 4 bytes each");
    }
  }
  rows_ = rows;
  policy_ = policy;
  decay_ = decay;
  scale_ = policy == RowPolicy::kScore ? 1 : 0;
  gain_ = 1;
  return OkStatus();
}

void EmbeddingScores::BeginStep() {
  constexpr double kMostScale = 1e25;            // leaves room for x in a float
  constexpr double kMostStep = double{1 << 24};  // a float has no larger whole numbers
  if (policy_ == RowPolicy::kScore) {
    scale_ /= 1 - decay_;
    if (scale_ > kMostScale) {
      Multiply(1 / scale_);
      scale_ = 1;
    }
    gain_ = static_cast<float>(decay_ * scale_);
  } else if (policy_ == RowPolicy::kLru && ++scale_ > kMostStep) {
    Multiply(0.5);  // steps long past become one
    scale_ = kMostStep / 2 + 1;
  }
}

void EmbeddingScores::Multiply(double factor) {
  for (size_t shard = 0; shard < rows_.size(); ++shard) {
    float* const scores = scores_[shard].get();
    for (int64_t row = 0; row < rows_[shard]; ++row) {
      scores[row] = static_cast<float>(scores[row] * factor);
    }
  }
}

uint32_t EmbeddingScores::Key(size_t shard, int64_t row) const {
  uint32_t key = 0;
  std::memcpy(&key, scores_[shard].get() + row, sizeof key);
  return key;
}

}  // namespace trepak
