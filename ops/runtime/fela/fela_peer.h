// The part of a worker that Fela's paper calls its Coordinator (section III-A): chunks go from the
// workers that hold them to those whose tokens need them.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_PEER_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_PEER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_chunks.h"
#include "ops/runtime/net/endpoint.h"

namespace trepak {

// A peer on each rank, with flows to all others. The token server says who sends which chunk to
// whom; a holder sends without waiting, also while its Trainer stands still, and what comes before
// it is asked for is kept.
//
// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block.
class FelaPeer : public Endpoint {
 public:
  static constexpr const char* kSystem = "fela";

  struct Wanted {
    FelaChunkName name;
    uint32_t holder = 0;  // the rank that has been told to send it, or this one, which has it
  };
  // By what is wanted, the tensors. Chunks stay here, too: who gets them must not write to them.
  using Callback = std::function<void(const Status&, std::vector<FelaTensors>)>;

  struct Counters {
    uint64_t chunks_sent = 0;      // to other ranks
    uint64_t bytes_sent = 0;       // of them
    uint64_t bytes_beside = 0;     // of these, beside the flows; see Transport
    uint64_t chunks_received = 0;  // from other ranks, of iterations that were not dropped
    uint64_t bytes_received = 0;   // from other ranks
    uint64_t chunks_local = 0;     // that were taken where they were made
    size_t bytes_held = 0;         // of chunks that are here
    size_t most_bytes_held = 0;    // of them, at most
    double waiting_seconds = 0;    // from the call of a Take to its end, over all
  };

  // `iterations`: see ParameterChunks; two are needed where ranks begin the next iteration while
  // others end the one before.
  FelaPeer(const Options& options, uint64_t iterations, std::shared_ptr<ErrorLatch> errors)
      : Endpoint(options, std::move(errors)), chunks_(iterations) {}
  ~FelaPeer() override { Stop(); }

  // Keeps a chunk that this worker has made, whose bytes must not change any more; see
  // ParameterChunks::Put.
  Status Put(const FelaChunkName& name, FelaTensors tensors);

  // Sends a chunk to the rank that has been given the token that needs it. Fails if the chunk is
  // not here, naming it. Does nothing for a rank that it was sent to before, or for this one.
  Status SendTo(const FelaChunkName& name, uint32_t rank);

  // Passes chunks when all are here. Several may be under way. `number`: by which it can be
  // cancelled.
  void Take(std::vector<Wanted> wanted, Callback callback, uint64_t number = 0);

  // A number that no Take has had; from 1 on.
  uint64_t DrawNumber() { return ++last_number_; }

  // Ends a Take, if it is under way: nobody wants the chunks any more.
  void CancelTake(uint64_t number);

  // Drops the chunks of earlier iterations. Fails a Take that waits for one.
  void DropBefore(uint64_t iteration);

  Counters counters() const;

  void Leave() override;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  struct Taking {
    uint64_t number = 0;
    std::vector<Wanted> wanted;
    Callback callback;
    Clock::time_point since;  // when it was called
    Clock::time_point heard;  // when something that it waits for came last
  };
  struct Over {
    Callback callback;
    Status status;
    std::vector<FelaTensors> chunks;
  };

  // Calls back who waits for what is here now, or was dropped.
  void Settle();

  // All of these require mutex_.
  Status CheckWanted(const std::vector<Wanted>& wanted) const;
  // The first of its chunks that is not here; null if all are.
  const Wanted* MissingOf(const Taking& taking) const;
  Over End(const Taking& taking, Status status);

  std::atomic<uint64_t> last_number_{0};
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  ParameterChunks chunks_;
  std::list<Taking> takings_;  // under way
  bool has_left_ = false;
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_PEER_H_
