// Chunks change hands between two iterations (Chicle, sections 3 and 4.4): from a rank's memory to
// another's, as they lie there.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_MOVER_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_MOVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/runtime/chicle/chunk_move.h"
#include "ops/runtime/net/endpoint.h"

namespace trepak {

// Between movers. Headers: `round` is the number of the move, `key` the task that gets the chunk,
// `slice` the lower half of the chunk's id.
namespace chicle {
constexpr MessageKind kChunk = KindOf("chicle", 1);  // its block
constexpr MessageKind kTaken = KindOf("chicle", 2);  // the receiver has it now: its id, 64 bits
}  // namespace chicle

// All ranks make the same moves, each with what is its own to give and to get, and count them
// alike. A receiver verifies a chunk, and acknowledges it once its own move has begun, in which it
// expects that chunk; until then the sender keeps it. So when a move fails, on whichever ranks, a
// chunk may be at both ends, but never at neither, unless its rank is dead.
//
// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block.
class ChunkMover : public Endpoint {
 public:
  static constexpr const char* kSystem = "chicle";

  // What has arrived, even if the move failed: the caller's from now on.
  using Callback = std::function<void(const Status&, std::vector<ArrivedChunk>)>;

  struct Counters {
    uint64_t moves = 0;            // that are over
    uint64_t chunks_sent = 0;      // to other ranks
    uint64_t bytes_sent = 0;       // of their blocks
    uint64_t bytes_beside = 0;     // of these, beside the flows; see Transport
    uint64_t chunks_received = 0;  // from other ranks
    uint64_t bytes_received = 0;   // of their blocks
    uint64_t bytes_copied = 0;     // of these, copied to where a chunk may begin
    double waiting_seconds = 0;    // from the call of a move to its end, over all moves
  };

  ChunkMover(const Options& options, std::shared_ptr<ErrorLatch> errors)
      : Endpoint(options, std::move(errors)) {}
  ~ChunkMover() override { Stop(); }

  // Sends chunks, and passes on those that are expected when all are here and all that were sent
  // have been acknowledged. One move at a time. The caller keeps what it gives, and leaves it as it
  // is, until the callback: if the move failed, all of it is still the caller's.
  void Move(const std::vector<OutgoingChunk>& outgoing, const std::vector<ExpectedChunk>& expected,
            Callback callback);

  Counters counters() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  Status SendAll(uint64_t number, const std::vector<OutgoingChunk>& outgoing);
  Status TakeChunk(Message message);
  Status TakeAcknowledgement(const Message& message);
  // Calls back if the move is over, or has failed.
  void Settle(const Status& failure);

  // All of these require mutex_.
  Status Begin(const std::vector<OutgoingChunk>& outgoing,
               const std::vector<ExpectedChunk>& expected);
  Status Accept(const ComingChunk& coming);

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  uint64_t next_ = 0;        // number of a move
  ChunkMove move_;           // the one under way
  Callback callback_;        // of who waits for it; null: none is under way
  bool is_sending_ = false;  // it has more to send
  Clock::time_point since_;  // when it was called
  Clock::time_point heard_;  // when something of it came last
  std::map<uint64_t, std::vector<ComingChunk>> early_;  // of moves that have not begun here
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_MOVER_H_
