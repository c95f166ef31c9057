// Parameter Chunks of a worker (Fela, section III-A): what its tokens have made, and what others
// have sent it.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_CHUNKS_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ops/runtime/fela/fela_chunk_messages.h"
#include "ops/runtime/fela/fela_chunk_name.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Keeps chunks of some iterations that follow each other, until it is told to drop the first ones.
// Of two chunks of one name the first one stays: a token that was given to a second worker, because
// the first one stood still, may have been completed by both.
//
// Thread safety: none; its owner sees to it.
class ParameterChunks {
 public:
  // `iterations`: of so many it keeps chunks, from the first that was not dropped; at least one.
  explicit ParameterChunks(uint64_t iterations) : iterations_(iterations) {}

  // Keeps what this worker has made; of an iteration that was dropped, does nothing. Fails if it
  // has made that chunk before.
  Status Put(const FelaChunkName& name, FelaTensors tensors);

  // Keeps a tensor that a rank has sent; of a dropped iteration, does nothing. `is_here` says
  // whether the chunk is here now, and was not before. Fails, naming the sender, if it is not the
  // next tensor of that chunk.
  Status Receive(uint32_t sender, const FelaChunkPart& part, Payload tensor, bool* is_here);

  // Null if the chunk is not here. Valid until it is dropped.
  const FelaTensors* Find(const FelaChunkName& name) const;

  // Notes that a chunk, which is here, goes to a rank. Says whether that is new.
  bool NoteSent(const FelaChunkName& name, uint32_t rank);

  // Drops everything of earlier iterations.
  void DropBefore(uint64_t iteration);

  // The first iteration that was not dropped.
  uint64_t first() const { return first_; }

  // Fails, as what the caller did wrong, for a chunk of an iteration that was dropped, or of one
  // too far ahead.
  Status CheckKept(const FelaChunkName& name) const;

  // Of all tensors that are here, also of chunks that are not complete: now, and at most. Of a part
  // of a tensor it is the part.
  size_t bytes() const { return bytes_; }
  size_t most_bytes() const { return most_bytes_; }

 private:
  struct Chunk {
    FelaTensors tensors;
    bool is_made_here = false;
    uint32_t from = 0;           // else: who has sent it
    std::set<uint32_t> sent_to;  // ranks
  };
  struct Arriving {
    FelaTensors tensors;
    size_t count = 0;  // when it is complete
  };
  using Arrivals = std::map<std::pair<FelaChunkName, uint32_t>, Arriving>;

  bool IsAhead(const FelaChunkName& name) const;
  std::string TooFarAhead(const FelaChunkName& name) const;
  void Count(const FelaTensors& tensors);
  void Discount(const FelaTensors& tensors);
  void Keep(const FelaChunkName& name, Chunk chunk);
  // Drops what has arrived of chunks that are not complete: from `begin` until before `end`.
  void DropArrivals(Arrivals::iterator begin, Arrivals::iterator end);

  const uint64_t iterations_;
  uint64_t first_ = 0;
  std::map<FelaChunkName, Chunk> chunks_;  // that are complete
  Arrivals arrivals_;                      // those that are not, by sender, too
  size_t bytes_ = 0;
  size_t most_bytes_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_CHUNKS_H_
