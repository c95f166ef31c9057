// The receiving end of all flows to this process: one ZeroMQ socket, behind a gate.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_LISTENER_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_LISTENER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ops/runtime/net/handshake.h"
#include "ops/runtime/net/transport.h"
#include "ops/runtime/net/zmq_gate.h"

namespace trepak {

// Thread safety: none but for `refused`; after Listen the transport's thread has it. Owns its
// sockets; context and receiver must outlive it.
class ZmqListener {
 public:
  struct Options {
    uint32_t rank = 0;
    std::string host;  // the address to listen on, e.g. "10.0.0.1"; the port is free to choose
    Secret secret{};
    bool encrypt = false;
    // What marks the acknowledgements of all that comes: small, and what is urgent waits for them.
    int dscp = 0;
    // How many flows the job's ranks may open to this one together; 0: nobody knows.
    size_t flows = 0;
  };

  ZmqListener(const Options& options, Transport::Receiver* receiver);
  ZmqListener(const ZmqListener&) = delete;
  ZmqListener& operator=(const ZmqListener&) = delete;
  ~ZmqListener() { Close(); }

  Status Listen(void* context);

  // Receives nothing more, from nobody. `refused` and `address` may still be asked.
  void Close();

  // Where it listens, e.g. "tcp://10.0.0.1:40123".
  const std::string& address() const { return address_; }

  // The descriptors that poll() is to wait for: see DescriptorOf.
  static constexpr size_t kDescriptors = ZmqGate::kDescriptors + 1;
  std::array<int, kDescriptors> descriptors() const;

  // Whether there may be something to do; whoever polls says so when a descriptor is readable.
  bool is_due() const { return due_; }
  void set_due() { due_ = true; }

  // Whether Proceed is to be called every kWatchEvery, though no descriptor is readable.
  static constexpr std::chrono::milliseconds kWatchEvery = ZmqGate::kWatchEvery;
  bool is_watching() const { return gate_.is_watching(); }

  // Receives, and lets in or ends connections; it is still due if more can be done at once.
  void Proceed();

  // Messages that were refused, of strangers or malformed, and connections that proved nothing.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  // False if it left some for the next turn.
  bool ReceiveFromPeers();
  void OnIncoming(const std::string& connection, int fd, Message message);
  void ForgetStrangers();
  void Refuse(const std::string& connection, const Status& why);

  const Options options_;
  Transport::Receiver* const receiver_;
  std::string address_;
  void* socket_ = nullptr;
  ZmqGate gate_;
  bool due_ = true;
  std::map<std::string, std::unique_ptr<ReceiverHandshake>> connections_;  // by ZeroMQ's identity
  std::atomic<uint64_t> refused_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_LISTENER_H_
