// What travels on a flow: a small typed header, and a payload.

#ifndef TREPAK_OPS_RUNTIME_NET_MESSAGE_H_
#define TREPAK_OPS_RUNTIME_NET_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "ops/runtime/net/payload.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Which message of which system. Each system numbers its own, from 1 to 0xef, in a header of its
// own; none of them is listed here. What all systems say, on their flows, has numbers from 0xf0 on.
using MessageKind = uint16_t;

// `system`: its stem. It is folded into a byte, so that a message that went to another system's
// endpoint by mistake is most likely told from one of its own; each system has its own flows.
constexpr MessageKind KindOf(std::string_view system, uint8_t number) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char letter : system) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  }
  return static_cast<MessageKind>((hash >> 24) << 8 | number);
}

// As errors name it.
inline std::string NameOf(MessageKind kind) {
  return "kind " + std::to_string(kind & 0xff) + " of system " + std::to_string(kind >> 8);
}

// What a payload is made of; kNone: of bytes.
enum class ElementType : uint8_t { kNone, kFloat32, kFloat64, kBfloat16, kInt32, kInt64 };
constexpr std::array<uint8_t, 6> kElementBytes{0, 4, 8, 2, 4, 8};

// Bytes of one element; 0 for kNone.
constexpr size_t SizeOf(ElementType type) { return kElementBytes[static_cast<size_t>(type)]; }

// Whether summation.h can add such elements up.
constexpr bool CanAdd(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat64;
}

// What goes before what: the flow a message takes, and its place in that flow's queue.
struct Precedence {
  Precedence(uint8_t priority_ = 0, uint16_t order_ = 0) : priority(priority_), order(order_) {}
  uint8_t priority;  // of the flow; 0 is the highest
  uint16_t order;    // smaller ones overtake greater ones that still wait; see Transport
};
constexpr uint16_t kLastInOrder = 0xffff;

// As it lies in memory, so it travels: ranks of one job are of one byte order, as their floats and
// bodies (below) travel as they are, too.
struct Header {
  uint32_t magic = 0x4b505254;  // "TRPK"
  uint8_t version = 3;          // of the protocol
  ElementType type = ElementType::kNone;
  MessageKind kind = 0;
  uint8_t flags = 0;
  uint8_t priority = 0;        // see Precedence
  uint16_t order = 0;          // see Precedence
  uint32_t sender = 0;         // rank
  uint32_t key = 0;            // which variable
  uint32_t slice = 0;          // which slice of it
  uint64_t round = 0;          // which version of it
  uint64_t sequence = 0;       // which message of its flow and order, from 0 on
  uint64_t token = 0;          // what the flow was given when it was authenticated
  uint64_t payload_bytes = 0;  // on the wire only
};
constexpr size_t kHeaderBytes = 56;
static_assert(sizeof(Header) == kHeaderBytes && std::is_trivially_copyable_v<Header>);
static_assert(std::has_unique_object_representations_v<Header>, "no padding");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "what the wire has");

struct Message {
  Header header;
  Payload payload;
};

// A message that carries one plain value without padding, as it lies in memory.
template <typename Body>
Message MessageOf(MessageKind kind, const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body> && !std::is_pointer_v<Body>);
  Message message;
  message.header.kind = kind;
  message.payload = Payload::Copy(&body, sizeof(body));
  return message;
}

// Reads it. Fails, naming sender and kind, if the message is of another size.
template <typename Body>
[[nodiscard]] Status ReadBody(const Message& message, Body* body) {
  static_assert(std::is_trivially_copyable_v<Body> && !std::is_pointer_v<Body>);
  if (message.payload.size() != sizeof(*body)) {
    return InvalidArgumentError("rank " + std::to_string(message.header.sender) + " sent " +
                                std::to_string(message.payload.size()) + " bytes in a message of " +
                                NameOf(message.header.kind) + " that has " +
                                std::to_string(sizeof(*body)));
  }
  std::memcpy(body, message.payload.data(), sizeof(*body));
  return OkStatus();
}

// A header's bytes on the wire, with the payload's size.
using HeaderBytes = std::array<unsigned char, kHeaderBytes>;

HeaderBytes Encode(const Header& header, size_t payload_bytes);

// Reads a header. Fails, naming what is wrong, for bytes that `Encode` can't have made, or if the
// payload has another size than the header says, or one that is no multiple of the element's.
// Reads nothing outside `bytes`, whatever they hold.
Status Decode(std::string_view bytes, size_t payload_bytes, Header* header);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_MESSAGE_H_
