// The sending end of one flow over ZeroMQ: a connection of its own, authenticated, with a queue.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_FLOW_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_FLOW_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "ops/runtime/net/handshake.h"
#include "ops/runtime/net/transport.h"
#include "ops/runtime/net/zmq_socket.h"

namespace trepak {

// Thread safety: none, the transport's thread has it. Owns its sockets; the context must outlive
// it.
class ZmqFlow {
 public:
  struct Options {
    Secret secret{};    // see FlowTarget
    uint32_t rank = 0;  // this process's
    bool encrypt = false;
    // A peer that has answered nothing for so long is taken to be gone.
    std::chrono::milliseconds silence{60'000};
    // Until then, it is tried anew where a peer's process ends the connection before it is open.
    std::chrono::steady_clock::time_point deadline;
  };

  ZmqFlow(void* context, const FlowTarget& target, const Options& options);
  ZmqFlow(const ZmqFlow&) = delete;
  ZmqFlow& operator=(const ZmqFlow&) = delete;
  // What is queued inside ZeroMQ still goes, if that takes no longer than kFarewell.
  ~ZmqFlow();

  static constexpr std::chrono::milliseconds kFarewell{5000};

  // The descriptors that poll() is to wait for, -1 where there is none: see DescriptorOf.
  static constexpr size_t kDescriptors = 2;
  std::array<int, kDescriptors> descriptors() const { return descriptors_; }

  // Whether there may be something to do; whoever polls says so when a descriptor is readable.
  bool is_due() const { return due_ && !has_ended(); }
  void set_due() { due_ = true; }

  // Whether Proceed is to be called every ZmqGate::kWatchEvery, though no descriptor is readable:
  // who answers has proved nothing.
  bool is_watching() const { return connection_ >= 0 && !is_open(); }

  // Connects, reads replies and events, and sends; the flow is still due if more can be done at
  // once. The first error ends the flow; it names the peer.
  Status Proceed();

  // Closes the flow at once and drops what is queued.
  void Drop();

  void Enqueue(Message message);

  const FlowTarget& target() const { return target_; }
  bool is_open() const { return handshake_.open(); }  // the peer has accepted it
  bool has_ended() const { return ended_; }
  // Of a flow that is not open: why the last try to connect failed, if one has.
  const std::string& failure() const { return failure_; }
  bool is_idle() const { return has_ended() || queues_.empty(); }
  uint64_t sent() const { return sent_; }  // messages, those of the handshake aside

 private:
  Status Connect();
  // Closes the connection and drops what is in it.
  void Disconnect();
  // What is to be done where the connection was lost, or must be: another try, or the flow's end.
  // `failure`: what is to be said of it if no try succeeds.
  Status OnLoss(const std::string& failure);
  Status ReadReplies();
  Status ReadEvents();
  Status OnEvent(const ZmqEvent& event);
  // Ends the connection where the other end says more than belongs to the handshake. ZeroMQ would
  // keep it all, part by part, until a message is complete.
  Status EndGreedy();
  void SendQueued();
  std::string EndedByPeer() const;
  std::string Name() const;

  void* const context_;
  const FlowTarget target_;
  const Options options_;
  SenderHandshake handshake_;
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  std::array<int, kDescriptors> descriptors_{-1, -1};  // of socket_ and monitor_
  int connection_ = -1;                                // its file descriptor, while it stands
  bool due_ = true;
  bool greeted_ = false;
  bool ended_ = false;
  int tries_ = 0;
  std::chrono::steady_clock::time_point retry_at_;  // where there is no socket
  std::string failure_;
  uint64_t sent_ = 0;
  std::map<uint16_t, std::deque<Message>> queues_;  // by order; none is empty
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_FLOW_H_
