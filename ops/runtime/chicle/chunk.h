// A chunk (Chicle, sections 3 and 4.4): samples in one contiguous block of memory, with their
// state, which travels between nodes as it lies there.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/runtime/chicle/chunk_field.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Where the elements of a field lie. Of a sparse field, row i has the columns and values from
// starts[i] to starts[i + 1]; of any other there are but values, one sample behind the other.
struct ChunkArrays {
  const int64_t* starts = nullptr;
  const int32_t* columns = nullptr;
  void* values = nullptr;
  void* committed = nullptr;  // of state: what Restore goes back to
};

// Every array begins at a multiple of 64 bytes of the block, and so does the block.
//
// Thread safety: as a std::vector. Copies of the memory that `payload` returns keep it alive.
class Chunk {
 public:
  // Of zeros.
  static Status Make(uint64_t id, uint32_t samples, std::vector<ChunkField> fields,
                     std::shared_ptr<Chunk>* chunk);

  // How many bytes one of such fields has.
  static uint64_t BytesOf(uint32_t samples, const std::vector<ChunkField>& fields);

  // Takes over what another process has sent, whatever it holds: fails, naming what is wrong,
  // unless the checksum, all places, and the columns of sparse rows are right. Copies it only if
  // its arrays would not begin where they should.
  static Status Adopt(Payload memory, std::shared_ptr<Chunk>* chunk);

  // Whether memory begins where a chunk's may.
  static bool IsPlaced(const Payload& memory);

  uint64_t id() const { return id_; }
  uint32_t samples() const { return samples_; }
  size_t bytes() const { return memory_.size(); }
  const std::vector<ChunkField>& fields() const { return fields_; }
  const std::vector<ChunkArrays>& arrays() const { return arrays_; }

  // The number of a field; -1 if there is none of that name.
  int Find(std::string_view name) const;

  // Fails, naming it, where the rows of a sparse field are not in order, or a column is none.
  Status CheckRows() const;

  // Makes the state what Restore goes back to.
  void Commit() { CopyState(/*back=*/false); }
  void Restore() { CopyState(/*back=*/true); }

  // The block, with its checksum, to be sent.
  Payload Stamped();

  // What stands for the content: of the samples and the state.
  uint64_t Digest() const;

 private:
  Chunk(Payload memory, uint64_t id, uint32_t samples, std::vector<ChunkField> fields)
      : memory_(std::move(memory)), id_(id), samples_(samples), fields_(std::move(fields)) {}

  void PlaceArrays();
  void CopyState(bool back);

  Payload memory_;
  uint64_t id_;
  uint32_t samples_;
  std::vector<ChunkField> fields_;
  std::vector<ChunkArrays> arrays_;  // by field
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_H_
