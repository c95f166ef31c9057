// Which Parameter Chunk (Fela, section III-A): what a token has made, or needs.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_CHUNK_NAME_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_CHUNK_NAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ops/runtime/net/payload.h"

namespace trepak {

enum class FelaChunkKind : uint16_t {
  kSamples,   // inputs of a T-1 token
  kLabels,    // of a T-1 token, and the weights of its samples
  kOutput,    // activations that a forward token has made
  kGradient,  // of the loss with respect to a forward token's output, by the token behind it
};
constexpr size_t kFelaChunkKinds = 4;

// Of equal iterations names lie together.
struct FelaChunkName {
  uint64_t iteration = 0;
  uint32_t token = 0;
  FelaChunkKind kind = FelaChunkKind::kOutput;

  std::tuple<uint64_t, uint32_t, FelaChunkKind> key() const { return {iteration, token, kind}; }
  friend bool operator<(const FelaChunkName& a, const FelaChunkName& b) {
    return a.key() < b.key();
  }
  friend bool operator==(const FelaChunkName& a, const FelaChunkName& b) {
    return a.key() == b.key();
  }

  // As errors have it.
  std::string ToString() const {
    static constexpr std::array<const char*, kFelaChunkKinds> kKinds{"samples", "labels", "output",
                                                                     "gradient of the output"};
    return std::string("the ") + kKinds[static_cast<size_t>(kind)] + " of token " +
           std::to_string(token) + " in iteration " + std::to_string(iteration);
  }
};

// What a chunk is: the bytes of tensors in an order, dtypes and shapes that both ends know.
using FelaTensors = std::vector<Payload>;

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_CHUNK_NAME_H_
