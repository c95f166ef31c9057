// The transport of real jobs: ZeroMQ over TCP.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_TRANSPORT_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_TRANSPORT_H_

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/net/transport.h"
#include "ops/runtime/net/zmq_flow.h"
#include "ops/runtime/net/zmq_listener.h"

namespace trepak {

// Every flow is a connection of its own, made by the sender, because ZMQ_TOS marks only what a
// connecting socket sends. The receiver has one socket for all of them, see ZmqListener.
//
// Thread safety: as Transport says. One thread of its own has all sockets; others hand it work
// under mutex_. Owns its ZeroMQ context; the receiver must outlive it.
class ZmqTransport : public Transport {
 public:
  struct Options : ZmqListener::Options {
    // A peer that has answered nothing for so long is taken to be gone.
    std::chrono::milliseconds silence{60'000};
  };

  // Listens and starts the thread.
  static Status Start(const Options& options, Receiver* receiver,
                      std::unique_ptr<ZmqTransport>* transport);
  ~ZmqTransport() override;

  std::string address() const override { return listener_->address(); }
  Status Open(const FlowTarget& target, std::chrono::milliseconds deadline) override;
  Status Send(uint32_t peer, uint8_t priority, Message message) override;
  void Stop() override;

  // Messages that were refused, of strangers or malformed, and connections that proved nothing.
  uint64_t refused() const { return listener_->refused(); }

 private:
  using FlowId =
      std::pair<uint8_t, uint32_t>;  // priority first: the order in which queues are served

  ZmqTransport(const Options& options, Receiver* receiver);
  struct Opening {
    FlowTarget target;
    std::chrono::steady_clock::time_point deadline;
  };

  Status Listen();

  // All of these are for the thread.
  void Loop();
  void TakeWork();
  // Waits until there may be something to do; marks the listener and flows as due.
  void Wait(std::chrono::milliseconds patience);
  void Proceed(ZmqFlow* flow);
  // The flow has been opened, or has failed.
  void Settle(ZmqFlow* flow, const Status& status);
  std::chrono::milliseconds Patience() const;  // how long to wait at most
  bool IsIdle() const;
  uint64_t SentMessages() const;  // by all flows

  // The caller holds mutex_.
  void Wake();

  const Options options_;
  Receiver* const receiver_;
  void* context_ = nullptr;
  int wake_fd_ = -1;

  // Of the thread alone, after Start.
  std::unique_ptr<ZmqListener> listener_;
  std::map<FlowId, std::unique_ptr<ZmqFlow>> flows_;
  // What was waited for: wake_fd_, then the descriptors of the listener and of all flows.
  std::vector<pollfd> items_;

  std::mutex mutex_;
  std::condition_variable opened_;
  // All guarded by mutex_.
  std::map<FlowId, Opening> to_open_;
  std::map<FlowId, Status> outcomes_;  // of Open
  std::map<FlowId, std::string>
      failures_;  // of flows that are still tried, why the last try failed
  std::deque<std::pair<FlowId, Message>> to_send_;
  bool stopping_ = false;
  bool awake_ = false;  // the thread looks for work before it waits again

  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_TRANSPORT_H_
