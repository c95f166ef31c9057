// What travels on a flow: a small typed header, and a payload.

#ifndef TREPAK_OPS_RUNTIME_NET_MESSAGE_H_
#define TREPAK_OPS_RUNTIME_NET_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/runtime/net/payload.h"
#include "ops/runtime/net/status.h"

namespace trepak {

enum class MessageKind : uint8_t {
  // Authentication; see handshake.h.
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kWelcome = 4,
  // To a parameter server.
  kPush = 5,    // adds the payload to a slice's sum
  kPull = 6,    // asks for a slice
  kDelta = 7,   // adds the payload to a slice's value
  kAssign = 8,  // sets a slice's value
  // From a parameter server.
  kAnswer = 9,
  // To everybody.
  kAbort = 10,  // the sender has failed; the payload says why, as text
  kLeave = 11,  // the sender is done: nothing more comes on this flow
  // Between RNA's coordinator and its workers; see rna_coordinator.h.
  kProbe = 12,    // answer when you have gradients
  kReady = 13,    // the answer to a probe
  kGo = 14,       // the round starts
  kDrain = 15,    // the sender computes no more until all ranks have said so
  kDrained = 16,  // all have: `round` is the first one that has not been
  // Between AD-PSGD's peers; see adpsgd_peer.h.
  kAverage = 17,   // the sender's parameters, to be averaged with the receiver's
  kAveraged = 18,  // the receiver's, as they were before
  kCounted = 19,   // how many samples each rank has taken, as far as the sender has heard
  // Between RNA's coordinator and its workers, where there are groups; see rna_exchange.h.
  kExchanged = 20,  // the sender has what came of the exchange after a round
  kAdopt = 21,      // take it
  // Between ElasticBSP's coordinator and its workers; see elastic_bsp_coordinator.h.
  kStepped = 22,  // the sender has ended a step
  kGrant = 23,    // the receiver may take `round` steps in all; `key` is the superstep
  kFetched = 24,  // the sender has the parameters of the barrier
  kOpen = 25,     // all have
};

enum class ElementType : uint8_t { kNone = 0, kFloat32 = 1, kFloat64 = 2 };

// Bytes of one element; 0 for kNone.
constexpr size_t SizeOf(ElementType type) {
  return type == ElementType::kFloat32 ? 4 : type == ElementType::kFloat64 ? 8 : 0;
}

// The sender wants the answer as soon as there is one: a push and a pull in one message.
constexpr uint8_t kWantsAnswer = 1;
// Of kDrain: the sender has gradients that no round has taken.
constexpr uint8_t kHasGradients = 1;
// Of kGrant: the receiver has come to a barrier, and is to fetch parameters first.
constexpr uint8_t kAtBarrier = 1;

// What goes before what: the flow a message takes, and its place in that flow's queue.
struct Precedence {
  Precedence(uint8_t priority_ = 0, uint16_t order_ = 0) : priority(priority_), order(order_) {}
  uint8_t priority;  // of the flow; 0 is the highest
  uint16_t order;    // smaller ones overtake greater ones that still wait; see Transport
};
constexpr uint16_t kLastInOrder = 0xffff;

struct Header {
  MessageKind kind = MessageKind::kHello;
  ElementType type = ElementType::kNone;
  uint8_t flags = 0;
  uint8_t priority = 0;   // see Precedence
  uint16_t order = 0;     // see Precedence
  uint32_t sender = 0;    // rank
  uint32_t key = 0;       // which variable; of kGo, the round's initiator; of kGrant, the superstep
  uint32_t slice = 0;     // which slice of it; of kGrant, how many ranks get one
  uint64_t round = 0;     // which version of it
  uint64_t sequence = 0;  // which message of its flow and order, from 0 on
  uint64_t token = 0;     // what the flow was given when it was authenticated
};

struct Message {
  Header header;
  Payload payload;
};

// A header's bytes on the wire: little endian, with a magic number, a version and the payload's
// size.
constexpr size_t kHeaderBytes = 56;
using HeaderBytes = std::array<unsigned char, kHeaderBytes>;

HeaderBytes Encode(const Header& header, size_t payload_bytes);

// Reads a header. Fails, naming what is wrong, for bytes that `Encode` can't have made, or if the
// payload has another size than the header says, or one that is no multiple of the element's.
// Reads nothing outside `bytes`, whatever they hold.
Status Decode(std::string_view bytes, size_t payload_bytes, Header* header);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_MESSAGE_H_
