// The chunks that a task has, and whose they are at a time (Chicle, section 3): the task's during
// an iteration, the scheduler's between two.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_STORE_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/chicle/chunk.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Thread safety: every method may be called from any thread. Shares its chunks with whoever looks
// at them.
class ChunkStore {
 public:
  using Chunks = std::vector<std::shared_ptr<Chunk>>;

  // Gives and takes a chunk; of the scheduler.
  Status Add(std::shared_ptr<Chunk> chunk);
  Status Take(uint64_t id, std::shared_ptr<Chunk>* chunk);

  // An iteration begins: from now on the chunks are the task's. `checked`: fails if state was
  // written to since the iteration before.
  Status Begin(bool checked);
  // It ends.
  Status End(bool checked);

  // Fails between iterations: `what` is the task's to do.
  Status CheckThatTaskOwns(const std::string& what) const;
  // Fails during one: `what` is the scheduler's to do.
  Status CheckThatSchedulerOwns(const std::string& what) const;

  // Makes the state of all chunks what Restore goes back to, between iterations; Restore may also
  // be called during one, which it ends.
  Status Commit();
  void Restore();

  // In the order of their numbers.
  Chunks chunks() const;

  // One more whenever a chunk has come or gone.
  uint64_t version() const;

 private:
  Status CheckThatTaskOwnsLocked(const std::string& what) const;
  Status CheckThatSchedulerOwnsLocked(const std::string& what) const;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<uint64_t, std::shared_ptr<Chunk>> chunks_;
  std::map<uint64_t, uint64_t> digests_;  // by chunk, when the iteration before ended; if checked
  bool in_iteration_ = false;
  uint64_t version_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_STORE_H_
