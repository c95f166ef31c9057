#include "ops/runtime/net/channel_table.h"

#include <algorithm>

namespace trepak {

Status ChannelTable::Open(Transport* transport, uint32_t rank,
                          const std::vector<std::string>& addresses, const std::vector<int>& dscp,
                          int send_buffer, std::chrono::milliseconds deadline) {
  rank_ = rank;
  priorities_ = dscp.size();
  for (size_t peer = 0; peer < addresses.size(); ++peer) {
    for (size_t priority = 0; priority < priorities_ && !addresses[peer].empty(); ++priority) {
      FlowTarget target;
      target.peer = static_cast<uint32_t>(peer);
      target.priority = static_cast<uint8_t>(priority);
      target.dscp = dscp[priority];
      // Nothing is slow on the way to oneself; and where less may wait in the kernel than a packet
      // of the loopback device holds, each waits 40 ms for its acknowledgement.
      target.send_buffer = peer == rank ? 0 : send_buffer;
      target.address = addresses[peer];
      TREPAK_RETURN_IF_ERROR(transport->Open(target, deadline));
      flows_[{target.peer, target.priority}] =
          std::make_unique<Flow>(transport, rank, target.peer, target.priority);
    }
  }
  return OkStatus();
}

Flow* ChannelTable::Find(uint32_t peer, uint8_t priority) const {
  const size_t last = priorities_ == 0 ? 0 : priorities_ - 1;
  const auto found = flows_.find({peer, static_cast<uint8_t>(std::min<size_t>(priority, last))});
  return found == flows_.end() ? nullptr : found->second.get();
}

void ChannelTable::Broadcast(const Message& message) const {
  std::lock_guard<std::mutex> lock(broadcasting_);
  for (const auto& [id, flow] : flows_) {
    if (id.second == 0) {
      // One that can't be told has failed itself.
      [[maybe_unused]] const Status status = flow->Send(message);
    }
  }
}

void ChannelTable::BroadcastOnAll(const Message& message) const {
  std::lock_guard<std::mutex> lock(broadcasting_);
  for (const auto& [id, flow] : flows_) {
    [[maybe_unused]] const Status status = flow->Send(message);
  }
}

std::set<uint32_t> ChannelTable::Peers() const {
  std::set<uint32_t> peers;
  for (const auto& [id, flow] : flows_) {
    peers.insert(id.first);
  }
  return peers;
}

std::vector<uint64_t> ChannelTable::BytesByPriority() const {
  std::vector<uint64_t> bytes(priorities_, 0);
  for (const auto& [id, flow] : flows_) {
    if (id.first != rank_) {
      bytes[id.second] += flow->bytes();
    }
  }
  return bytes;
}

}  // namespace trepak
