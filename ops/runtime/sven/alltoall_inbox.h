// The splits that a rank has got, until all of an iteration are in.

#ifndef TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_INBOX_H_
#define TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_INBOX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/sven/alltoall_messages.h"

namespace trepak {

// What all splits of one exchange must have in common.
struct AlltoallRows {
  ElementType type = ElementType::kNone;
  uint32_t row_elements = 0;
};

// One iteration of exchanges. It is over when the splits of all ranks are in and somebody has asked
// for them, or said that nobody will.
struct AlltoallExchange {
  using Clock = std::chrono::steady_clock;
  using Callback = std::function<void(const Status&, std::vector<Payload> splits)>;

  std::vector<std::optional<Payload>> splits;  // by rank
  std::vector<AlltoallRows> rows;              // by rank
  size_t missing = 0;
  bool is_discarded = false;
  Callback callback;            // of who waits for it
  Clock::time_point since;      // when it was asked for
  Clock::time_point scattered;  // when this rank's splits were
  Clock::time_point complete;   // when the last split came
  uint32_t last = 0;            // whose it was

  bool is_over() const { return missing == 0 && (callback != nullptr || is_discarded); }
};

// Thread safety: none.
class AlltoallInbox {
 public:
  // An iteration of exchanges.
  using Id = std::pair<uint32_t, uint64_t>;  // key, iteration

  AlltoallInbox(uint32_t rank, uint32_t size) : rank_(rank), size_(size), by_peer_(size) {}

  // Takes a split of `from`. Fails if that one has come before, or is not like the others.
  Status Put(uint32_t from, const Id& id, const AlltoallRows& rows, Payload split);

  // The exchange of that name, which may have begun elsewhere only.
  AlltoallExchange& At(const Id& id);

  // Removes an exchange that is over; what it held counts as taken.
  AlltoallExchange Remove(const Id& id);

  // What is to be told to a peer of what was taken of its splits since the last time, and forgets
  // it; nothing if it is less than `least` bytes.
  std::vector<alltoall::Iterations> Report(uint32_t peer, size_t least);

  const std::map<Id, AlltoallExchange>& exchanges() const { return exchanges_; }
  // Bytes of the other ranks' splits, now and at most.
  size_t held() const { return held_; }
  size_t most_held() const { return most_held_; }

 private:
  struct Peer {
    std::map<uint32_t, uint64_t> taken;  // not reported yet: by key, iterations in all
    size_t bytes = 0;                    // of them, not reported yet
  };
  // Iterations that were taken: all below `next`, and some above.
  struct Progress {
    uint64_t next = 0;
    std::map<uint64_t, std::vector<size_t>> beyond;  // by iteration, bytes by rank
  };

  void Count(uint32_t key, Progress* progress);

  const uint32_t rank_;
  const uint32_t size_;
  std::map<Id, AlltoallExchange> exchanges_;
  std::map<uint32_t, Progress> progress_;  // by key
  std::vector<Peer> by_peer_;
  size_t held_ = 0;
  size_t most_held_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_INBOX_H_
