// How messages get from one process to another; replaceable, so that tests can lose, delay, reorder
// and cut.

#ifndef TREPAK_OPS_RUNTIME_NET_TRANSPORT_H_
#define TREPAK_OPS_RUNTIME_NET_TRANSPORT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/runtime/net/handshake.h"
#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// One end of a flow that is to be opened: a one-way stream to a peer, of one priority.
struct FlowTarget {
  uint32_t peer = 0;     // rank
  uint8_t priority = 0;  // 0 is the highest
  int dscp = 0;          // what its packets are marked with, 0 to 63
  std::string address;   // what the peer's transport calls itself
  // Bytes that may wait in the kernel, where nothing overtakes them; 0: as many as it likes.
  int send_buffer = 0;
  // What proves to the peer that this process may send; none: what all of the job know.
  std::optional<Secret> secret = std::nullopt;
};

// Thread safety: every method may be called from any thread; Stop from one, once.
class Transport {
 public:
  // Takes what comes in. Called by the transport's threads, one call at a time and each after the
  // one before; must not block, and may call Send.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // `message.header.sender` and `.priority` are those that were proved.
    virtual void OnMessage(Message message) = 0;
    // A flow to or from a peer broke; `status` names it.
    virtual void OnFailure(uint32_t peer, const Status& status) = 0;
    // Comes at least every 0.2 seconds, for deadlines.
    virtual void OnTick() = 0;
  };

  virtual ~Transport() = default;

  // Where peers' flows to this process begin, e.g. "tcp://10.0.0.1:40123".
  virtual std::string address() const = 0;

  // Opens a flow and waits until the peer has accepted it.
  virtual Status Open(const FlowTarget& target, std::chrono::milliseconds deadline) = 0;

  // Sends on an open flow, without waiting: the message keeps its place in the flow's own queue.
  // Messages of one flow and one order (see Precedence) arrive as they were sent; those of a
  // smaller order overtake the others that still wait in the queue.
  virtual Status Send(uint32_t peer, uint8_t priority, Message message) = 0;

  // Whether what is sent on an open flow goes another way than the one that was proved; see
  // UcxTransport.
  virtual bool GoesBesideFlow(uint32_t /*peer*/, uint8_t /*priority*/) const { return false; }

  // Ends all flows and the thread. What is queued is sent first, unless nothing moves for seconds.
  // The receiver is not called any more when this returns.
  virtual void Stop() = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_TRANSPORT_H_
