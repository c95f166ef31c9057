// Names of Parameter Chunks as ops take them: rows of numbers.

#ifndef TREPAK_OPS_FELA_NAMES_H_
#define TREPAK_OPS_FELA_NAMES_H_

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "ops/runtime/fela/fela_chunk_name.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

// What a caller of Fela's ops did wrong.
inline absl::Status FelaMisuse(const std::string& what) {
  return absl::InvalidArgumentError("trepak: " + what);
}

// Views a tensor: by chunk, iteration, token and kind, and with them who holds it. Read it after
// Check.
class FelaNames {
 public:
  enum Columns : int64_t { kOnly = 3, kWithHolder = 4 };

  FelaNames(const tensorflow::Tensor& tensor, Columns columns)
      : tensor_(tensor), columns_(columns) {}

  absl::Status Check() const {
    if (tensor_.dims() != 2 || tensor_.dim_size(1) != columns_) {
      return FelaMisuse("names of Fela's chunks are " + tensor_.shape().DebugString() +
                        ", not [chunks, " + std::to_string(columns_) + "]");
    }
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    constexpr std::array<int64_t, kWithHolder> kMosts{std::numeric_limits<int64_t>::max(), kMost,
                                                      kFelaChunkKinds - 1, kMost};
    for (int64_t i = 0; i < size(); ++i) {
      for (int64_t k = 0; k < columns_; ++k) {
        if (At(i, k) < 0 || At(i, k) > kMosts[static_cast<size_t>(k)]) {
          return FelaMisuse("there is no chunk of iteration " + std::to_string(At(i, 0)) +
                            ", token " + std::to_string(At(i, 1)) + ", kind " +
                            std::to_string(At(i, 2)) +
                            (k < kOnly ? "" : " of rank " + std::to_string(At(i, k))));
        }
      }
    }
    return absl::OkStatus();
  }

  int64_t size() const { return tensor_.dim_size(0); }
  FelaChunkName Name(int64_t chunk) const {
    return {static_cast<uint64_t>(At(chunk, 0)), static_cast<uint32_t>(At(chunk, 1)),
            static_cast<FelaChunkKind>(At(chunk, 2))};
  }
  uint32_t Holder(int64_t chunk) const { return static_cast<uint32_t>(At(chunk, kOnly)); }

 private:
  int64_t At(int64_t row, int64_t column) const { return tensor_.matrix<int64_t>()(row, column); }

  const tensorflow::Tensor& tensor_;
  const Columns columns_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_FELA_NAMES_H_
