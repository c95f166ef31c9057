// How far look-ups may be ahead of their updates (thesis, section 6.1.2: the bound of staleness).

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PERMITS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PERMITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "ops/runtime/net/status.h"

namespace trepak {

// A look-up that will be trained takes a permit, its update gives it back. With n permits the
// look-up of batch t sees at least the update of batch t - n, whatever the schedule: it would have
// none to take otherwise. A schedule that lets it come to that is wrong, so it is told rather than
// held up.
//
// Thread safety: none.
class EmbeddingPermits {
 public:
  // Look-ups of which the log has the versions.
  static constexpr size_t kLogged = 1 << 16;

  // A look-up begins, which sees `version` updates since the permits were reset.
  Status Take(uint64_t permits) {
    if (taken_ - given_back_ >= permits) {
      return InternalError("the look-up of batch " + std::to_string(taken_) +
                           " would see the updates of " + std::to_string(given_back_) +
                           " batches only: with " + std::to_string(permits) +
                           " permits it must be " + std::to_string(taken_ + 1 - permits));
    }
    log_.push_back(given_back_);
    if (log_.size() > kLogged) {
      log_.pop_front();
    }
    most_stale_ = std::max(most_stale_, taken_ - given_back_);
    ++taken_;
    return OkStatus();
  }

  // The update of the oldest batch that has one to come is done.
  Status GiveBack() {
    if (given_back_ == taken_) {
      return InternalError("an update came without a look-up of its batch");
    }
    ++given_back_;
    return OkStatus();
  }

  // Batches that were looked up are not trained: their permits are there again.
  void Reset() { *this = EmbeddingPermits(); }

  // Of the last look-ups since the last reset, the oldest first: how many updates each has seen.
  const std::deque<uint64_t>& log() const { return log_; }
  // The number of the next look-up.
  uint64_t taken() const { return taken_; }
  // Updates that a look-up has missed at most, of batches before its own.
  uint64_t most_stale() const { return most_stale_; }

 private:
  uint64_t taken_ = 0;
  uint64_t given_back_ = 0;
  uint64_t most_stale_ = 0;
  std::deque<uint64_t> log_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PERMITS_H_
