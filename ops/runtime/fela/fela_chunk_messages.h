// A Parameter Chunk on its way: a message for each of its tensors, in their order.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_CHUNK_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_CHUNK_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ops/runtime/fela/fela_chunk_name.h"
#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Between peers; the token server's messages have the numbers below.
namespace fela {
// A tensor of a chunk. Header: `round` is the iteration, `key` the token, `slice` the kind and,
// in its lower half, which tensor; `flags` is how many the chunk has.
constexpr MessageKind kChunk = KindOf("fela", 0x20);
}  // namespace fela

constexpr size_t kMostFelaTensors = UINT8_MAX;  // of a chunk: what `flags` can say

struct FelaChunkPart {
  FelaChunkName name;
  size_t index = 0;  // of the tensor
  size_t count = 1;  // of the chunk's tensors
};

inline Message MessageOfPart(const FelaChunkPart& part, Payload tensor) {
  Message message;
  message.header.kind = fela::kChunk;
  message.header.flags = static_cast<uint8_t>(part.count);
  message.header.round = part.name.iteration;
  message.header.key = part.name.token;
  message.header.slice =
      static_cast<uint32_t>(part.name.kind) << 16 | static_cast<uint32_t>(part.index);
  message.payload = std::move(tensor);
  return message;
}

// Fails, naming the sender, for what MessageOfPart can't have made.
inline Status ReadPart(const Header& header, FelaChunkPart* part) {
  const uint32_t kind = header.slice >> 16;
  *part = {{header.round, header.key, static_cast<FelaChunkKind>(kind)},
           header.slice & 0xffff,
           header.flags};
  if (kind >= kFelaChunkKinds || part->index >= part->count) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) + " sent tensor " +
                                std::to_string(part->index) + " of " + std::to_string(part->count) +
                                " of a chunk of kind " + std::to_string(kind) + " of token " +
                                std::to_string(header.key) +
                                ", which no chunk has: do all ranks run one version of trepak?");
  }
  return OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_CHUNK_MESSAGES_H_
