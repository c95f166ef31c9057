// How two ends of a flow prove to each other that they belong to the same job.
//
//   sender → receiver: hello      sender's nonce
//   receiver → sender: challenge  receiver's nonce, proof that it knows the secret
//   sender → receiver: proof      that the sender knows it
//   receiver → sender: welcome    the flow's token, which every later message carries
//
// A proof is an HMAC-SHA-256 of the job's secret over both nonces, the sender's rank, the flow's
// priority and who speaks: none can be replayed elsewhere.

#ifndef TREPAK_OPS_RUNTIME_NET_HANDSHAKE_H_
#define TREPAK_OPS_RUNTIME_NET_HANDSHAKE_H_

#include <array>
#include <cstdint>
#include <string>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"

namespace trepak {

namespace handshake {
constexpr MessageKind kHello = KindOf("handshake", 1);
constexpr MessageKind kChallenge = KindOf("handshake", 2);
constexpr MessageKind kProof = KindOf("handshake", 3);
constexpr MessageKind kWelcome = KindOf("handshake", 4);
}  // namespace handshake

using Secret = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

// Returns a secret for a job, from the system's random numbers.
Secret MakeSecret();

// The sender's side of one flow. Thread safety: none needed, one thread has it.
class SenderHandshake {
 public:
  SenderHandshake(const Secret& secret, uint32_t rank, uint8_t priority);

  // The first message.
  Message Hello() const;

  // Takes the challenge, and returns in `reply` what to send. Fails if the receiver does not know
  // the secret.
  Status OnChallenge(const Message& challenge, Message* reply);

  // Takes the welcome: the flow is open.
  Status OnWelcome(const Message& welcome);

  bool open() const { return open_; }
  uint64_t token() const { return token_; }

 private:
  Secret secret_;
  uint32_t rank_;
  uint8_t priority_;
  Nonce mine_;
  Nonce theirs_{};
  bool challenged_ = false;
  bool open_ = false;
  uint64_t token_ = 0;
};

// The receiver's side of one flow. Thread safety: none needed, one thread has it.
class ReceiverHandshake {
 public:
  explicit ReceiverHandshake(const Secret& secret);

  // Takes any message of a sender that is not welcome yet; returns in `reply` what to send. Fails
  // for strangers: with an error, and for good.
  Status OnMessage(const Message& message, Message* reply);

  bool open() const { return open_; }
  uint64_t token() const { return token_; }
  uint32_t rank() const { return rank_; }
  uint8_t priority() const { return priority_; }

 private:
  const Secret secret_;
  Nonce mine_;
  Nonce theirs_{};
  bool greeted_ = false;
  bool open_ = false;
  uint32_t rank_ = 0;
  uint8_t priority_ = 0;
  uint64_t token_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_HANDSHAKE_H_
