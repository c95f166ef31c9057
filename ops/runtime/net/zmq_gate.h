// Who may come in to a listening socket, and how many may stand before it.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_GATE_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_GATE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ops/runtime/net/handshake.h"
#include "ops/runtime/net/status.h"
#include "ops/runtime/net/zmq_crowd.h"
#include "ops/runtime/net/zmq_proof.h"
#include "ops/runtime/net/zmq_socket.h"

namespace trepak {

// Answers ZeroMQ's questions whether a connection has proved itself, and ends connections that have
// not: any of them where they are too many, those that take longer than kProofDeadline, and those
// that send more than a proof. (ZeroMQ gets memory for whatever frame is announced, even in the
// midst of a handshake, and ends a connection only where it is longer than kMostFrameBytes.) A peer
// that is ended because a crowd came connects again: see ZmqCrowd.
//
// Thread safety: none, the transport's thread has it. The context must outlive it.
class ZmqGate {
 public:
  // So many may stand at least, or twice as many as flows are expected. A peer stands for three
  // round trips; with a network of 100 ms and 1,000 strangers a second it succeeds each third time.
  static constexpr size_t kMostUnproven = 256;
  static constexpr uint64_t kMostProofBytes = 4096;  // a peer sends about a third of it
  static constexpr std::chrono::milliseconds kProofDeadline{5000};

  // `flows`: how many the job's ranks may open together.
  ZmqGate(const Secret& secret, bool encrypt, size_t flows);
  ZmqGate(const ZmqGate&) = delete;
  ZmqGate& operator=(const ZmqGate&) = delete;
  ~ZmqGate() { Close(); }

  // Stands before a socket that is not bound yet.
  Status Guard(void* context, void* listener);

  // Leaves. The listening socket must have been closed.
  void Close();

  // Says where the socket was bound. No connection gets in before.
  void SetAddress(const std::string& address) { check_.emplace(secret_, address, encrypt_); }

  // The descriptors that poll() is to wait for: see DescriptorOf.
  static constexpr size_t kDescriptors = 2;
  std::array<int, kDescriptors> descriptors() const { return descriptors_; }

  // Answers, takes notice of who came and went, and ends those that are too many. Returns how many
  // connections have ended that proved nothing.
  size_t Proceed();

  // Whether Proceed is to be called every kWatchEvery, though no descriptor is readable.
  static constexpr std::chrono::milliseconds kWatchEvery{2};
  bool is_watching() const { return !standing_.empty(); }

  // Ends those that take too long. All that has come in must have been read before.
  void EndLate();

  // The connection with that file descriptor has shown ZeroMQ its proof: it makes place for nobody.
  void Recognize(int fd);

  // It has proved itself: what it sends may be read.
  void Admit(int fd);

 private:
  using Clock = std::chrono::steady_clock;

  struct Standing {
    int fd = -1;
    Clock::time_point since;
  };

  void Answer();
  void ReadEvents();
  void EndCrowd();
  void EndGreedy();
  void End(uint64_t number);
  void Forget(int fd);

  const Secret secret_;
  const bool encrypt_;
  std::optional<ProofCheck> check_;
  void* questions_ = nullptr;  // of ZeroMQ, by RFC 27
  void* events_ = nullptr;     // of the listener
  std::array<int, kDescriptors> descriptors_{-1, -1};
  int nothing_ = -1;  // a descriptor of nothing
  int copy_ = -1;     // of the connection that is being ended, else of nothing
  // Connections that have proved nothing. Their numbers say which came first.
  std::map<int, uint64_t> unproven_;       // by file descriptor
  std::map<uint64_t, Standing> standing_;  // of these, those not ended yet
  ZmqCrowd crowd_;                         // of these, those that ZeroMQ has no proof of
  uint64_t came_ = 0;                      // connections so far
  Clock::time_point watched_;
  size_t refused_ = 0;  // since the last Proceed
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_GATE_H_
