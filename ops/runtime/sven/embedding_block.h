// Which rows of a shard are read or written at once.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_BLOCK_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/runtime/sven/embedding_plan.h"

namespace trepak {

// Rows of a shard, one behind the other.
struct EmbeddingBlock {
  size_t shard = 0;
  int64_t first_row = 0;
  int64_t count = 0;
  bool with_slots = false;  // with what is behind the weights

  // A block of several rows may have so many.
  static constexpr size_t kMostBytes = 4 << 20;
};

// The plan must have such rows.
inline size_t BytesOf(const EmbeddingPlan& plan, const EmbeddingBlock& block) {
  return static_cast<size_t>(block.count) * plan.WidthOf(block.shard, block.with_slots) *
         sizeof(float);
}

// For messages. The plan must have the shard.
inline std::string Described(const EmbeddingPlan& plan, const EmbeddingBlock& block) {
  return std::to_string(block.count) + " rows from " + std::to_string(block.first_row) +
         " on of shard " + std::to_string(block.shard) + " of embedding table '" +
         plan.tables()[plan.shards()[block.shard].table].name + "'";
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_BLOCK_H_
