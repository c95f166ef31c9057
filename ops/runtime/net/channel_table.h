// Which flow leads to a peer at a priority: Geryon's channel_table (section IV).

#ifndef TREPAK_OPS_RUNTIME_NET_CHANNEL_TABLE_H_
#define TREPAK_OPS_RUNTIME_NET_CHANNEL_TABLE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/flow.h"

namespace trepak {

// Thread safety: Open comes first, from one thread; the rest may then be called from any thread.
// Broadcasts come one after the other; for the rest no lock is needed, since nothing changes any
// more. Owns the flows; the transport must outlive it.
class ChannelTable {
 public:
  // Opens a flow of each priority to each peer.
  //   addresses: by rank; an empty one is no peer.
  //   dscp: by priority, what marks its packets.
  //   send_buffer: see FlowTarget.
  Status Open(Transport* transport, uint32_t rank, const std::vector<std::string>& addresses,
              const std::vector<int>& dscp, int send_buffer, std::chrono::milliseconds deadline);

  // The flow to `peer` of `priority`, the last one if there are not so many; null if none.
  Flow* Find(uint32_t peer, uint8_t priority) const;

  // A message to everybody, on the flows of the highest priority. Flows that have failed are left
  // out. Who acts upon it cannot overtake it: a broadcast that it causes comes later everywhere.
  void Broadcast(const Message& message) const;

  // The same on the flows of all priorities: it arrives behind all that was sent before.
  void BroadcastOnAll(const Message& message) const;

  size_t priorities() const { return priorities_; }

  // The ranks to which flows lead.
  std::set<uint32_t> Peers() const;

  // By priority, bytes of payloads sent to other ranks.
  std::vector<uint64_t> BytesByPriority() const;

 private:
  uint32_t rank_ = 0;
  size_t priorities_ = 0;
  std::map<std::pair<uint32_t, uint8_t>, std::unique_ptr<Flow>> flows_;
  mutable std::mutex broadcasting_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_CHANNEL_TABLE_H_
