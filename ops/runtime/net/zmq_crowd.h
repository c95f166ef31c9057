// What happens where more connections come than may stand before a listening socket.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_CROWD_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_CROWD_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace trepak {

// Returns a number below the given one, each with equal chances.
using Draw = std::function<uint32_t(uint32_t)>;

// Says which connection makes place for the next: any. Where the oldest did, strangers who come
// fast enough would keep all those out whose network takes longer, for ever; where the newest did,
// those who came first would. So each comes through sooner or later, as long as it tries again.
//
// Thread safety: none.
class ZmqCrowd {
 public:
  // `most`: connections that may stand.
  ZmqCrowd(size_t most, Draw draw) : most_(most), draw_(std::move(draw)) {}

  void Add(uint64_t connection) { standing_.push_back(connection); }

  // One that is not there is none.
  void Remove(uint64_t connection);

  // Removes and returns one to end, if more stand than may.
  std::optional<uint64_t> TakeOneTooMany();

 private:
  const size_t most_;
  const Draw draw_;
  std::vector<uint64_t> standing_;  // in no order
};

// Returns after how long a sender tries again that was ended so many times. Those who were ended
// together don't come back together.
std::chrono::milliseconds RetryAfter(int tries, const Draw& draw);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_CROWD_H_
