// What a rank has to send to one peer, and how much of it that peer has room for.

#ifndef TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_OUTBOX_H_
#define TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_OUTBOX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "ops/runtime/net/message.h"

namespace trepak {

// A split goes out at once if the peer, with it, holds no more bytes than its credit. It also goes
// out if the peer has taken all earlier iterations of the same exchanges, or waits for this one:
// else ranks that take exchanges in different orders could wait for each other for ever. Splits of
// the same exchanges go out in their order, so that who waits for one gets all before it.
//
// Thread safety: none.
class AlltoallOutbox {
 public:
  // `credit`: bytes that the peer may hold of splits that it has not taken.
  explicit AlltoallOutbox(size_t credit) : credit_(credit) {}

  void Add(Message split) { waiting_.push_back(std::move(split)); }

  // Returns the splits that may go out now, in order.
  std::vector<Message> Admit();

  // Lets all go out that wait: this rank ends, so they are the last ones.
  void WaiveCredit() { credit_ = std::numeric_limits<size_t>::max(); }

  // The peer has taken so many iterations of these exchanges. Fails if it can't have.
  Status Take(uint32_t key, uint64_t iterations);

  // The peer waits for so many iterations of these exchanges.
  void Want(uint32_t key, uint64_t iterations) {
    exchanges_[key].wanted = std::max(exchanges_[key].wanted, iterations);
  }

  bool is_waiting() const { return !waiting_.empty(); }
  size_t held_by_peer() const { return held_; }

 private:
  struct Exchanges {
    uint64_t taken = 0;        // iterations
    uint64_t wanted = 0;       // iterations
    std::deque<size_t> bytes;  // of those that the peer holds, the oldest first
  };

  size_t credit_;
  size_t held_ = 0;  // bytes
  std::deque<Message> waiting_;
  std::map<uint32_t, Exchanges> exchanges_;  // by key
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_OUTBOX_H_
