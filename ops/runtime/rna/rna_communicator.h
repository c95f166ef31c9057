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

#include "ops/runtime/net/error_latch.h"
#include "ops/runtime/rna/rna_contributor.h"
#include "ops/runtime/rna/rna_exchange.h"
#include "ops/runtime/rna/rna_inbox.h"
#include "ops/runtime/rna/rna_round.h"

namespace trepak {

// Sums the buffers of all ranks of a group, which call it in the same order.
class RoundReducer {
 public:
  virtual ~RoundReducer() = default;

  // Sums in place, and waits until that is done, or fails, or `given_up` turns true: then somebody
  // may still use the buffer, whose owner must be kept. `call`: which one this is, from 0 on.
  virtual Status Sum(uint64_t call, ElementType type, const Payload& buffer,
                     const std::function<bool()>& given_up) = 0;
};

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

  // `group`: the rank of its coordinator. `failed`: called by the thread, which then ends.
  RnaCommunicator(const RnaRules& rules, uint32_t group, const Parts& parts,
                  std::shared_ptr<RoundReducer> reducer, std::shared_ptr<ErrorLatch> errors,
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
  void Show(const RnaRound& round, const Contribution& mine,
            Timeline::Clock::time_point begin) const;

  const RnaRules rules_;
  const uint32_t group_;
  const Parts parts_;
  const std::shared_ptr<RoundReducer> reducer_;
  const std::shared_ptr<ErrorLatch> errors_;
  const Failed failed_;
  uint64_t calls_ = 0;  // of the reducer; the thread's

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RnaRound> rounds_;  // Guarded by mutex_.
  bool stopping_ = false;        // Guarded by mutex_.

  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_COMMUNICATOR_H_
