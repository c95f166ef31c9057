// The thread of a rank of RNA that communicates (thesis, section 5.1.3).

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_COMMUNICATOR_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_COMMUNICATOR_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "ops/runtime/lanes/collective_calls.h"
#include "ops/runtime/net/error_latch.h"
#include "ops/runtime/rna/rna_contributor.h"
#include "ops/runtime/rna/rna_exchange.h"
#include "ops/runtime/rna/rna_inbox.h"
#include "ops/runtime/rna/rna_round.h"

namespace trepak {

// Takes part in rounds, and brings what came of exchanges to the group, one after the other and in
// the group's order, until one fails.
//
// Thread safety: every method may be called from any thread. The lock guards what is to be done,
// and is not held while that is done.
class RnaCommunicator {
 public:
  // What rounds take, and where they go; outlive this.
  struct Parts {
    RnaContributor* contributor;
    RnaExchange* exchange;
    RnaInbox* inbox;
  };
  using Failed = std::function<void(uint64_t round, const Status& status)>;

  // `group`: the rank of its coordinator. `calls`: sums of its ranks. `failed`: called by the
  // thread, which then ends.
  RnaCommunicator(const RnaRules& rules, uint32_t group, const Parts& parts,
                  std::shared_ptr<CollectiveCalls> calls, std::shared_ptr<ErrorLatch> errors,
                  Failed failed);
  ~RnaCommunicator() { Stop(); }

  // Adds a round to take part in, or an exchange whose outcome is to be adopted.
  void Push(const RnaRound& round);

  // Tells the thread that the latch holds an error.
  void Wake();

  // Ends the thread; not from itself.
  void Stop();

 private:
  // The thread's.
  void Loop();
  Status Perform(RnaRound round);
  // Sums in place. Given up after an error and at the end: then `calls_` may still use the buffer.
  Status Sum(const Payload& buffer);
  void Show(const RnaRound& round, const Contribution& mine,
            Timeline::Clock::time_point begin) const;

  const RnaRules rules_;
  const uint32_t group_;
  const Parts parts_;
  const std::shared_ptr<CollectiveCalls> calls_;
  const std::shared_ptr<ErrorLatch> errors_;
  const Failed failed_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RnaRound> rounds_;  // Guarded by mutex_.
  bool stopping_ = false;        // Guarded by mutex_.

  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_COMMUNICATOR_H_
