#include "ops/runtime/net/handshake.h"

#include <sodium.h>

#include <cstring>
#include <string_view>

namespace trepak {
namespace {

using Proof = std::array<unsigned char, crypto_auth_hmacsha256_BYTES>;
static_assert(std::tuple_size<Secret>::value == crypto_auth_hmacsha256_KEYBYTES);

enum class Speaker : unsigned char { kReceiver = 1, kSender = 2 };

std::string Statement(Speaker speaker, const Nonce& sender_nonce, const Nonce& receiver_nonce,
                      uint32_t rank, uint8_t priority) {
  Header header;
  header.sender = rank;
  header.priority = priority;
  const HeaderBytes who = Encode(header, 0);
  std::string text(1, static_cast<char>(speaker));
  text.append(sender_nonce.begin(), sender_nonce.end());
  text.append(receiver_nonce.begin(), receiver_nonce.end());
  text.append(who.begin(), who.end());
  return text;
}

Proof Prove(const Secret& secret, const std::string& statement) {
  Proof proof;
  crypto_auth_hmacsha256(proof.data(), reinterpret_cast<const unsigned char*>(statement.data()),
                         statement.size(), secret.data());
  return proof;
}

// In constant time: how long it takes tells nothing about the proof.
bool Holds(const Secret& secret, const std::string& statement, const unsigned char* proof) {
  return crypto_auth_hmacsha256_verify(proof,
                                       reinterpret_cast<const unsigned char*>(statement.data()),
                                       statement.size(), secret.data()) == 0;
}

template <size_t kSize>
std::array<unsigned char, kSize> Random() {
  std::array<unsigned char, kSize> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

template <typename Bytes>
std::string_view View(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const unsigned char* Bytes(const Payload& payload) {
  return static_cast<const unsigned char*>(payload.data());
}

Status Unexpected(const Message& message) {
  return InvalidArgumentError("an unauthenticated flow sent a message of " +
                              NameOf(message.header.kind) + " and " +
                              std::to_string(message.payload.size()) + " bytes");
}

}  // namespace

Secret MakeSecret() { return Random<std::tuple_size<Secret>::value>(); }

SenderHandshake::SenderHandshake(const Secret& secret, uint32_t rank, uint8_t priority)
    : secret_(secret),
      rank_(rank),
      priority_(priority),
      mine_(Random<std::tuple_size<Nonce>::value>()) {}

Message SenderHandshake::Hello() const {
  Message hello;
  hello.header.kind = handshake::kHello;
  hello.header.sender = rank_;
  hello.header.priority = priority_;
  hello.payload = Payload::Copy(View(mine_));
  return hello;
}

Status SenderHandshake::OnChallenge(const Message& challenge, Message* reply) {
  if (challenge.header.kind != handshake::kChallenge || challenged_ ||
      challenge.payload.size() != sizeof(Nonce) + sizeof(Proof)) {
    return Unexpected(challenge);
  }
  std::memcpy(theirs_.data(), challenge.payload.data(), sizeof(Nonce));
  const unsigned char* proof = Bytes(challenge.payload) + sizeof(Nonce);
  if (!Holds(secret_, Statement(Speaker::kReceiver, mine_, theirs_, rank_, priority_), proof)) {
    return InvalidArgumentError("the receiver does not know the job's secret");
  }
  challenged_ = true;
  reply->header = {};
  reply->header.kind = handshake::kProof;
  reply->header.sender = rank_;
  reply->header.priority = priority_;
  reply->payload = Payload::Copy(
      View(Prove(secret_, Statement(Speaker::kSender, mine_, theirs_, rank_, priority_))));
  return OkStatus();
}

Status SenderHandshake::OnWelcome(const Message& welcome) {
  if (welcome.header.kind != handshake::kWelcome || !challenged_ || open_) {
    return Unexpected(welcome);
  }
  token_ = welcome.header.token;
  open_ = true;
  return OkStatus();
}

ReceiverHandshake::ReceiverHandshake(const Secret& secret)
    : secret_(secret), mine_(Random<std::tuple_size<Nonce>::value>()) {}

Status ReceiverHandshake::OnMessage(const Message& message, Message* reply) {
  reply->header = {};
  if (message.header.kind == handshake::kHello && !greeted_ &&
      message.payload.size() == sizeof(Nonce)) {
    greeted_ = true;
    rank_ = message.header.sender;
    priority_ = message.header.priority;
    std::memcpy(theirs_.data(), message.payload.data(), sizeof(Nonce));
    reply->header.kind = handshake::kChallenge;
    std::string challenge(View(mine_));
    challenge +=
        View(Prove(secret_, Statement(Speaker::kReceiver, theirs_, mine_, rank_, priority_)));
    reply->payload = Payload::Copy(challenge);
    return OkStatus();
  }
  if (message.header.kind == handshake::kProof && greeted_ && !open_ &&
      message.payload.size() == sizeof(Proof)) {
    if (!Holds(secret_, Statement(Speaker::kSender, theirs_, mine_, rank_, priority_),
               Bytes(message.payload))) {
      return InvalidArgumentError("a flow that calls itself rank " + std::to_string(rank_) +
                                  " does not know the job's secret");
    }
    open_ = true;
    randombytes_buf(&token_, sizeof(token_));
    reply->header.kind = handshake::kWelcome;
    reply->header.token = token_;
    return OkStatus();
  }
  return Unexpected(message);
}

}  // namespace trepak
