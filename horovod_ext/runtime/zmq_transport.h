// The transport of real jobs: ZeroMQ over TCP.

#ifndef TREPAK_HOROVOD_EXT_RUNTIME_ZMQ_TRANSPORT_H_
#define TREPAK_HOROVOD_EXT_RUNTIME_ZMQ_TRANSPORT_H_

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_ext/runtime/handshake.h"
#include "horovod_ext/runtime/transport.h"
#include "horovod_ext/runtime/zmq_flow.h"

namespace trepak {

// Every flow is a connection of its own, made by the sender, because ZMQ_TOS marks only what a
// connecting socket sends. The receiver has one socket for all of them.
//
// Thread safety: as Transport says. One thread of its own has all sockets; others hand it work
// under mutex_. Owns its ZeroMQ context; the receiver must outlive it.
class ZmqTransport : public Transport {
 public:
  struct Options {
    uint32_t rank = 0;
    std::string host;  // the address to listen on, e.g. "10.0.0.1"; the port is free to choose
    Secret secret{};
    // What marks the acknowledgements of all that comes: small, and what is urgent waits for them.
    int dscp = 0;
    // A peer that has answered nothing for so long is taken to be gone.
    std::chrono::milliseconds silence{60'000};
  };

  // Listens and starts the thread.
  static Status Start(const Options& options, Receiver* receiver,
                      std::unique_ptr<ZmqTransport>* transport);
  ~ZmqTransport() override;

  std::string address() const override { return address_; }
  Status Open(const FlowTarget& target, std::chrono::milliseconds deadline) override;
  Status Send(uint32_t peer, uint8_t priority, Message message) override;
  void Stop() override;

  // Messages that were refused, of strangers or malformed, and connections that brought none.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  using FlowId =
      std::pair<uint8_t, uint32_t>;  // priority first: the order in which queues are served

  ZmqTransport(const Options& options, Receiver* receiver);
  Status Listen();

  // All of these are for the thread.
  void Loop();
  void TakeWork();
  // Waits until there may be something to do; marks sockets in items_, and flows as due.
  void Wait(int milliseconds);
  void Proceed(ZmqFlow* flow);
  // The flow has been opened, or has failed.
  void Settle(ZmqFlow* flow, const Status& status);
  // False if it left some for the next turn.
  bool ReceiveFromPeers();
  void OnIncoming(const std::string& connection, Message message);
  // Counts connections that end without a message: what came by them was no ZeroMQ.
  void CountStrangers();
  void ForgetStrangers();
  void Refuse(const std::string& connection, const Status& why);
  bool HasDueFlows() const;
  bool IsIdle() const;
  uint64_t SentMessages() const;  // by all flows

  // The caller holds mutex_.
  void Wake();

  const Options options_;
  Receiver* const receiver_;
  std::string address_;
  void* context_ = nullptr;
  int wake_fd_ = -1;
  std::atomic<uint64_t> refused_{0};

  // Of the thread alone, after Start.
  void* listener_ = nullptr;
  std::map<FlowId, std::unique_ptr<ZmqFlow>> flows_;
  void* strangers_ = nullptr;  // monitor of listener_
  // What was waited for: wake_fd_, listener_, strangers_, then the descriptors of all flows.
  std::vector<pollfd> items_;
  std::map<std::string, std::unique_ptr<ReceiverHandshake>> connections_;  // by ZeroMQ's identity
  std::set<int> heard_;  // file descriptors of connections that brought a message

  std::mutex mutex_;
  std::condition_variable opened_;
  // All guarded by mutex_.
  std::map<FlowId, FlowTarget> to_open_;
  std::map<FlowId, Status> outcomes_;  // of Open
  std::deque<std::pair<FlowId, Message>> to_send_;
  bool stopping_ = false;
  bool awake_ = false;  // the thread looks for work before it waits again

  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_HOROVOD_EXT_RUNTIME_ZMQ_TRANSPORT_H_
