// A one-way stream of messages to a peer, of one priority.

#ifndef TREPAK_OPS_RUNTIME_NET_FLOW_H_
#define TREPAK_OPS_RUNTIME_NET_FLOW_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "ops/runtime/net/transport.h"

namespace trepak {

// Numbers what it sends, so that the receiver sees what is lost, doubled or out of order.
//
// Thread safety: every method may be called from any thread. The transport must outlive it.
class Flow {
 public:
  Flow(Transport* transport, uint32_t sender, uint32_t peer, uint8_t priority)
      : transport_(transport), sender_(sender), peer_(peer), priority_(priority) {}
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Hands a message to the transport, which sends it when it can. Fails if the flow has failed.
  Status Send(Message message);

  // Bytes of payloads that were handed over.
  uint64_t bytes() const;

 private:
  Transport* const transport_;
  const uint32_t sender_;
  const uint32_t peer_;
  const uint8_t priority_;
  mutable std::mutex mutex_;
  std::map<uint16_t, uint64_t> next_sequence_;  // Guarded by mutex_; by order.
  uint64_t bytes_ = 0;                          // Guarded by mutex_.
};

// The other end: says whether a message is the next one of its flow. Thread safety: none.
class SequenceCheck {
 public:
  // Fails, naming the sender, if messages were lost, doubled or overtook others of the same order.
  Status Check(const Header& header);

 private:
  std::map<std::tuple<uint32_t, uint8_t, uint16_t>, uint64_t> next_;  // by sender, priority, order
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_FLOW_H_
