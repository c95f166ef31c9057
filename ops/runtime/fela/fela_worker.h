// A worker's side of token-based scheduling: it asks for tokens and reports them (Fela, section
// III-A).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_WORKER_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_WORKER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/coordination/coordinated_worker.h"
#include "ops/runtime/fela/fela_peer.h"
#include "ops/runtime/fela/fela_scheduler.h"

namespace trepak {

// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block.
class FelaWorker : public CoordinatedWorker {
 public:
  static constexpr const char* kSystem = "fela";

  // What the token server says to the trainer, in its order.
  struct Event {
    enum class Kind { kToken, kTrained, kOver, kAhead };
    Kind kind = Kind::kOver;
    FelaScheduler::Assignment token;
    uint32_t submodel = 0;   // all of whose tokens are done
    uint64_t samples = 0;    // of all workers, in the iteration that is over
    double loss = 0;         // the sum over them
    uint64_t iteration = 0;  // of the token or sub-model, or that is over
  };
  using Callback = std::function<void(const Status&, const Event&)>;

  struct Counters {
    uint64_t iterations = 0;  // that it has begun
    uint64_t tokens = 0;      // that it has been given
  };

  FelaWorker(const Options& options, uint32_t coordinator, const FelaRules& rules,
             std::shared_ptr<FelaPeer> peer, std::shared_ptr<ErrorLatch> errors)
      : CoordinatedWorker(options, coordinator, std::move(errors)),
        plan_(rules),
        peer_(std::move(peer)) {}
  ~FelaWorker() override { Stop(); }

  // Goes to the next iteration, with so many samples of its own: drops the chunks of those that
  // are over, and says what the tokens are whose chunks it is to put.
  std::vector<FelaPlan::Part> Prepare(uint32_t samples);

  // Begins it: the chunks of its samples are there for others.
  Status Begin(uint32_t samples);

  // Iterations that it may be ahead of.
  uint32_t staleness() const { return plan_.rules().staleness; }

  // The one that it is in: from 0 on.
  uint64_t iteration() const;

  // Asks for a token: the first one of a new iteration, or another one. `to_the_end`: this worker
  // does not begin another iteration before this one is over.
  Status Request(bool to_the_end = false);

  // Stands still for a time, or until the iteration is over; says whether it is. It fails like
  // Next.
  bool StandStill(Clock::duration time);

  // It has trained the token that it was given; asks for the next one. `loss`: the sum over the
  // token's samples, if it was of the last sub-model.
  Status Report(uint32_t token, double loss);

  // Passes the next event. One call at a time.
  void Next(Callback callback);

  // This rank can't go on: all hear why, also those that wait in collectives and not here.
  void GiveUp(const std::string& why) { Fail(AbortedError(why)); }

  // Whether this process has failed, or heard that another has.
  Status status() const { return error(); }

  Counters counters() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  Status Tell(Message message, uint32_t key, uint64_t iteration);
  Status SendChunk(const Message& message);
  // Hands an event on, or keeps it; requires that mutex_ is not held.
  void Pass(Event event);

  const FelaPlan plan_;
  const std::shared_ptr<FelaPeer> peer_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  uint64_t next_ = 0;   // iteration
  uint64_t given_ = 0;  // of the token that it was given last
  uint64_t ended_ = 0;  // iterations, as far as it has heard
  std::deque<Event> events_;
  std::condition_variable changed_;         // ended_, or this has failed
  Callback callback_;                       // of who waits
  Clock::time_point heard_ = Clock::now();  // of the token server
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_WORKER_H_
