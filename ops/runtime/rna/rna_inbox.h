// What a rank of RNA is to apply next, and who waits for it.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_INBOX_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_INBOX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ops/runtime/net/error_latch.h"
#include "ops/runtime/rna/rna_contributor.h"
#include "ops/runtime/rna/rna_round.h"

namespace trepak {

// Rounds lie here in their order from their end until they are read. One of the exchange's period
// locks the parameters when it is read: what came of the exchange is to be read next, and unlocks.
//
// Thread safety: every method may be called from any thread. The contributor's lock is taken under
// this one, as what is waited for depends on both. Callbacks run in Wake, without a lock, and must
// not block.
class RnaInbox {
 public:
  using Clock = std::chrono::steady_clock;
  using Callback = std::function<void(const Status&)>;

  // What has happened here so far.
  struct Counters {
    uint64_t rounds = 0;        // that have finished
    uint64_t contributed = 0;   // of these, in which this rank brought a gradient
    uint64_t gradients = 0;     // brought
    uint64_t staleness = 0;     // sum over the contributed rounds
    uint64_t contributors = 0;  // sum over the rounds
  };

  // The contributor must outlive this.
  RnaInbox(const RnaRules& rules, RnaContributor* contributor, std::shared_ptr<ErrorLatch> errors);

  // A round has ended, to which this rank has brought `mine`; or an exchange has, perhaps before
  // this rank has applied the round that it is after.
  void Put(RnaRound round, const Contribution& mine);

  // See RnaWorker's.
  size_t finished() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return Finished();
  }
  size_t remaining() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return Limited() + (lock_ ? 1 : 0);
  }

  // Moves the oldest one out, if there is any.
  bool Read(RnaRound* round);

  // The round that has locked the parameters.
  std::optional<uint64_t> locked() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return lock_ ? std::make_optional(lock_->round) : std::nullopt;
  }

  // Waits for a round to read; not if this rank has nothing that a round could take. Where steps
  // are aligned, waits until the round of the latest step's number has ended. It may have before
  // that step: who comes late does not wait, and does not start a further round either.
  void Await(Callback callback);

  // Waits for where the drain ends, and for the rounds before that. False, and takes no callback,
  // if somebody does already.
  bool Drain(Callback* callback);

  // All ranks drain, and have started so many rounds. Only these may be read then.
  void EndDrainAfter(uint64_t rounds) {
    std::lock_guard<std::mutex> lock(mutex_);
    last_ = rounds;
    drains_since_ = Clock::now();
  }

  // A step writes: unless this drains, all that has finished may be read again. Returns the version
  // of the parameters after what was read.
  uint64_t GoOn() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!on_drained_) {
      limit_.reset();
    }
    return read_version_;
  }

  // Calls those that need not wait any more: after each change of what they wait for, in either
  // class, and after an error.
  void Wake();

  // Whether something is to come that takes the coordinator.
  bool NeedsCoordinator() const;

  // What somebody has waited for since that time or longer; empty if nothing.
  std::string MissingSince(Clock::time_point since) const;

  // What comes next, and has not yet.
  std::string Missing() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return NotYet();
  }

  Counters counters() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return counters_;
  }

 private:
  struct Lock {
    uint64_t round = 0;
    uint32_t initiator = 0;  // who exchanges the parameters
    Clock::time_point since;
  };

  // All require mutex_.
  uint64_t Ended() const { return read_ + rounds_.size(); }
  uint64_t Limited() const { return limit_ ? *limit_ - read_ : 0; }
  size_t Finished() const;
  bool MustWait() const;
  std::string NotYet() const;

  const RnaRules rules_;
  RnaContributor* const contributor_;
  const std::shared_ptr<ErrorLatch> errors_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::deque<RnaRound> rounds_;
  uint64_t read_ = 0;  // rounds
  uint64_t read_version_ = 0;
  std::optional<Lock> lock_;                // of the parameters
  std::map<uint64_t, RnaRound> exchanged_;  // by the round that it is after
  std::optional<uint64_t> limit_;           // what may be read, after a drain
  std::vector<Callback> awaiting_;
  Clock::time_point awaiting_since_;
  Callback on_drained_;             // while this drains
  std::optional<uint64_t> last_;    // all rounds before it are to end a drain
  Clock::time_point drains_since_;  // or has known where its drain ends
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_INBOX_H_
