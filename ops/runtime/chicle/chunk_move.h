// What one rank gives and gets in a move of chunks, and what of it is still missing.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_MOVE_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_MOVE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ops/runtime/chicle/chunk.h"
#include "ops/runtime/net/status.h"

namespace trepak {

struct OutgoingChunk {
  uint32_t rank = 0;  // that gets it; may be the giver, whose tasks may be several
  uint32_t task = 0;  // of that rank's
  std::shared_ptr<Chunk> chunk;
};

struct ExpectedChunk {
  uint64_t id = 0;
  uint32_t rank = 0;  // that has it
  uint32_t task = 0;  // of this rank's
};

struct ComingChunk {
  uint32_t rank = 0;  // that has sent it
  uint32_t task = 0;
  std::shared_ptr<Chunk> chunk;
};

struct ArrivedChunk {
  uint32_t task = 0;
  std::shared_ptr<Chunk> chunk;
};

// Thread safety: none.
class ChunkMove {
 public:
  ChunkMove() = default;
  ChunkMove(uint64_t number, uint32_t ranks) : number_(number), ranks_(ranks) {}

  // Says what is to be moved; once. Fails for what can't be.
  Status Plan(const std::vector<OutgoingChunk>& outgoing,
              const std::vector<ExpectedChunk>& expected);

  // Takes a chunk that has come. Fails if it is not expected, from that rank and for that task.
  Status Accept(const ComingChunk& coming);

  // A rank has taken a chunk; keeps it no longer. Fails if it was not sent there.
  Status Acknowledge(uint32_t rank, uint64_t id);

  // Fails if a rank that has sent a chunk of a later move has not sent all of this one: its flow
  // keeps their order, so it counts its moves otherwise.
  Status CheckOrder(uint64_t later, const ComingChunk& coming) const;

  uint64_t number() const { return number_; }
  bool is_over() const { return missing_ == 0; }

  // Those that are waited for: chunks to come, chunks to be acknowledged.
  std::set<uint32_t> givers() const;
  std::set<uint32_t> takers() const;
  // As errors name it; it is not over.
  std::string Awaited() const;

  // What has come; ends the move.
  std::vector<ArrivedChunk> End();

 private:
  struct Given {
    uint32_t rank = 0;
    std::shared_ptr<Chunk> chunk;  // null: it was acknowledged
  };
  struct Gotten {
    ExpectedChunk expected;
    std::shared_ptr<Chunk> chunk;  // null: it has not come
  };

  std::string InThisMove() const;

  uint64_t number_ = 0;
  uint32_t ranks_ = 0;
  std::map<uint64_t, Given> given_;    // by chunk
  std::map<uint64_t, Gotten> gotten_;  // by chunk
  size_t missing_ = 0;                 // chunks, and acknowledgements
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_MOVE_H_
