// Chunks for tests.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_TESTING_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/chicle/chunk.h"
#include "ops/runtime/net/checksum.h"

namespace trepak {

inline ChunkField DenseField(std::string name, std::vector<int64_t> shape, uint8_t bits = 32) {
  ChunkField field;
  field.name = std::move(name);
  field.bits = bits;
  field.shape = std::move(shape);
  return field;
}

inline ChunkField SparseField(std::string name, int64_t columns, uint64_t nonzeros,
                              uint8_t bits = 32) {
  ChunkField field = DenseField(std::move(name), {columns}, bits);
  field.is_sparse = true;
  field.nonzeros = nonzeros;
  return field;
}

inline ChunkField StateField(std::string name, std::vector<int64_t> shape, uint8_t bits = 64) {
  ChunkField field = DenseField(std::move(name), std::move(shape), bits);
  field.is_state = true;
  return field;
}

inline std::shared_ptr<Chunk> MadeChunk(uint64_t id, uint32_t samples,
                                        std::vector<ChunkField> fields) {
  std::shared_ptr<Chunk> chunk;
  EXPECT_EQ(Chunk::Make(id, samples, std::move(fields), &chunk), OkStatus());
  return chunk;
}

// How many elements `values` of a field has.
inline uint64_t ElementsOf(const Chunk& chunk, size_t field) {
  const ChunkField& about = chunk.fields()[field];
  return about.is_sparse ? about.nonzeros : chunk.samples() * about.sample_elements();
}

// Deals a sparse field's values out to rows at random, to columns at random.
inline void DealRows(Chunk* chunk, size_t field, std::mt19937* random) {
  const ChunkField& about = chunk->fields()[field];
  auto* const starts = const_cast<int64_t*>(chunk->arrays()[field].starts);
  auto* const columns = const_cast<int32_t*>(chunk->arrays()[field].columns);
  for (uint32_t i = 1; i < chunk->samples(); ++i) {
    starts[i] = static_cast<int64_t>((*random)() % (about.nonzeros + 1));
  }
  starts[chunk->samples()] = static_cast<int64_t>(about.nonzeros);
  std::sort(starts, starts + chunk->samples() + 1);
  for (uint64_t i = 0; i < about.nonzeros; ++i) {
    columns[i] = static_cast<int32_t>((*random)() % static_cast<uint64_t>(about.shape[0]));
  }
}

// Random bytes as values, in rows that can be.
inline void FillRandomly(Chunk* chunk, uint32_t seed) {
  std::mt19937 random(seed);
  for (size_t i = 0; i < chunk->fields().size(); ++i) {
    if (chunk->fields()[i].is_sparse) {
      DealRows(chunk, i, &random);
    }
    auto* const bytes = static_cast<unsigned char*>(chunk->arrays()[i].values);
    std::generate_n(bytes, ElementsOf(*chunk, i) * chunk->fields()[i].element_bytes(),
                    [&random] { return static_cast<unsigned char>(random()); });
  }
}

// One with a field of each kind.
inline std::shared_ptr<Chunk> RandomChunk(uint64_t id, uint32_t seed, uint32_t samples = 7) {
  std::shared_ptr<Chunk> chunk = MadeChunk(
      id, samples,
      {DenseField("x", {3, 5}), SparseField("rows", 13, samples == 0 ? 0 : 4 * samples + 1),
       DenseField("y", {}, 64), StateField("alpha", {2})});
  FillRandomly(chunk.get(), seed);
  return chunk;
}

// A copy of the block, with its checksum.
inline Payload CopyOf(Chunk* chunk) { return Payload::Copy(chunk->Stamped().view()); }

// Reads and writes all that a chunk says it has, for the address sanitizer to see.
inline uint64_t Touch(Chunk* chunk) {
  uint64_t sum = chunk->Digest();
  for (size_t i = 0; i < chunk->fields().size(); ++i) {
    const ChunkArrays& arrays = chunk->arrays()[i];
    const size_t bytes = ElementsOf(*chunk, i) * chunk->fields()[i].element_bytes();
    sum += Checksum(static_cast<const char*>(arrays.values), bytes);
    if (arrays.starts != nullptr) {
      for (uint32_t row = 0; row < chunk->samples(); ++row) {
        for (int64_t k = arrays.starts[row]; k < arrays.starts[row + 1]; ++k) {
          EXPECT_LT(arrays.columns[k], chunk->fields()[i].shape[0]);
        }
      }
    }
  }
  chunk->Commit();
  chunk->Restore();
  return sum;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_TESTING_H_
