// What a chunk says of its samples: the names, types and shapes of their values.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_FIELD_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_FIELD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/runtime/net/status.h"

namespace trepak {

// What each sample of a chunk has one value, row or array of.
struct ChunkField {
  std::string name;            // at most kMostName bytes
  uint8_t code = 2;            // of an element, as DLPack has it: int 0, uint 1, float 2, bool 6
  uint8_t bits = 32;           // of an element
  bool is_state = false;       // may be written to during an iteration; is kept twice, see Commit
  bool is_sparse = false;      // rows with `shape[0]` columns, in compressed form
  std::vector<int64_t> shape;  // of a sample; at most kMostDimensions
  uint64_t nonzeros = 0;       // of all samples, if it is sparse

  static constexpr size_t kMostName = 23;
  static constexpr size_t kMostDimensions = 6;
  static constexpr size_t kMost = 16;  // of a chunk

  size_t element_bytes() const { return bits / 8; }
  uint64_t sample_elements() const;
};

constexpr uint64_t kMostChunkBytes = uint64_t{1} << 40;

// As errors name it.
inline std::string NameOfChunk(uint64_t id) { return "chunk " + std::to_string(id); }

// What is wrong with a chunk.
Status WrongChunk(uint64_t id, const std::string& what);

// Fails, naming the first of them, for fields that no chunk can have. Those that pass have sizes
// that don't overflow.
Status CheckFields(uint64_t id, uint32_t samples, const std::vector<ChunkField>& fields);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_FIELD_H_
