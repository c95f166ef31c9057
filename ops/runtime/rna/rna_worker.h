// A rank's side of RNA: what it computes, the rounds it takes part in, and their results.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_WORKER_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_WORKER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ops/runtime/coordination/coordinated_worker.h"
#include "ops/runtime/parameters/global_parameters.h"
#include "ops/runtime/rna/rna_communicator.h"
#include "ops/runtime/rna/rna_contributor.h"
#include "ops/runtime/rna/rna_exchange.h"
#include "ops/runtime/rna/rna_inbox.h"
#include "ops/runtime/rna/rna_round.h"

namespace trepak {

// Training writes gradients and reads finished rounds, and waits for neither. A thread of the
// worker's own takes part in the rounds: it brings what was written since the round before, a null
// gradient if there is nothing.
//
// Every rank sees the same rounds in the same order. Who applies each of them once has the same
// parameters as all others that have applied as many.
//
// The worker dispatches messages and calls to its parts, each of which holds one thing: what this
// rank contributes, what it is to apply, what its group exchanges with others, and the thread.
//
// Thread safety: every method may be called from any thread; callbacks run in one of the worker's
// threads or in the caller's, without a lock, and must not block. The worker has no lock, and each
// part one. No two are held together, but for the contributor's under the inbox's.
class RnaWorker : public CoordinatedWorker, public std::enable_shared_from_this<RnaWorker> {
 public:
  static constexpr const char* kSystem = "rna";

  using Rules = RnaRules;
  using Round = RnaRound;
  struct Counters : RnaInbox::Counters, RnaContributor::Counters {};
  using Callback = RnaInbox::Callback;
  using ValuesCallback = std::function<void(const Status&, Payload)>;

  // `calls`: what sums rounds up, over all ranks of the group. `global`: what groups exchange
  // parameters through; null if there are none. The worker must be owned by a shared_ptr then.
  RnaWorker(const Options& options, const Rules& rules, uint32_t coordinator,
            std::shared_ptr<CollectiveCalls> calls, std::shared_ptr<GlobalParameters> global,
            std::shared_ptr<ErrorLatch> errors);
  ~RnaWorker() override;

  // Hands over the gradient of a step, computed with the parameters of now: after the rounds that
  // were read. Takes the memory over; its version is set here.
  Status Write(Gradient gradient);

  // Rounds that have finished and were not read. After a drain and until the next write, those that
  // the drain waited for: other ranks may have gone on. While parameters are locked, what came of
  // the exchange is the only one.
  size_t finished() const { return inbox_.finished(); }

  // Rounds that are to be read after a drain, finished or not.
  size_t remaining() const { return inbox_.remaining(); }

  // Returns the oldest one.
  Status Read(Round* round);

  // Exchanges parameters with other groups, after a round that has said so was applied.
  Status Exchange(const Payload& values);

  // What becomes of the parameters of the whole job when all groups have drained: `leads` brings
  // its group's last change, and then all ranks fetch, which is what training goes on from.
  void BringLastChange(const Payload& values, Callback callback);
  void Fetch(ValuesCallback callback);

  // Sets the parameters of the whole job; one rank does, before all fetch them.
  void Assign(Payload values, Callback callback);

  // Samples of other groups that the last fetch has brought.
  uint64_t TakeSamples() { return exchange_.TakeSamples(); }

  // Waits for a round to read, or for the end of the latest step's; see RnaInbox::Await.
  void Await(Callback callback) { inbox_.Await(std::move(callback)); }

  // Says that this rank computes no more, and waits until all ranks have said so and the last round
  // has finished. Afterwards training goes on as before.
  void Drain(Callback callback);

  // Ends the threads; not from one of them.
  void Shutdown() override;

  Counters counters() const { return {inbox_.counters(), contributor_.counters()}; }
  void CountCopying(std::chrono::nanoseconds took) { contributor_.CountCopying(took); }

  uint32_t members() const { return rules_.members; }

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  Status Answer(MessageKind kind, uint64_t round, uint8_t flags = 0);
  // Fails, for all of the group, if parameters can't be exchanged.
  Status CheckParameters(const Payload& values);
  void Exchanged(uint64_t round, const Status& status, Payload values, uint64_t total);

  const Rules rules_;
  RnaContributor contributor_;
  RnaInbox inbox_;
  RnaExchange exchange_;
  RnaCommunicator communicator_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_WORKER_H_
