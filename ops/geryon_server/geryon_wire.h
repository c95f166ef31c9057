// What the tasks of a TensorFlow cluster say to each other on Geryon's flows. Pure values.

#ifndef TREPAK_OPS_GERYON_SERVER_GERYON_WIRE_H_
#define TREPAK_OPS_GERYON_SERVER_GERYON_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/runtime/net/handshake.h"
#include "ops/runtime/net/message.h"
#include "tensorflow/core/framework/tensor.h"

namespace trepak {

// What a task must know of another to open flows to it. Its bytes travel by gRPC.
struct ExchangeAddress {
  uint32_t id = 0;        // drawn at random: a task that was started anew is another one
  Secret secret{};        // what proves that somebody was told
  std::string transport;  // see Transport::address

  std::string Encode() const;
  // False if the bytes are none.
  bool Decode(std::string_view bytes);
};

// A tensor that was asked for, or why there is none.
struct Found {
  absl::Status status;
  tensorflow::Tensor tensor;
  bool is_dead = false;  // TensorFlow's: of a branch that was not taken
  bool carried = true;   // false: it must be asked for by gRPC
  bool lost = false;     // flows don't lead to the task any more, or never did
};

namespace wire {

constexpr MessageKind kAddress = KindOf("geryon", 1);  // who the sender is
constexpr MessageKind kRequest = KindOf("geryon", 2);  // asks for a tensor
constexpr MessageKind kTensor = KindOf("geryon", 3);   // the answer

// Flag of an introduction: the sender wants to hear from the receiver.
constexpr uint8_t kAsks = 1;
// Flag of an answer's first message, which says what the tensor is; its content comes next.
constexpr uint8_t kDescription = 1;

// Says who the sender is; `asks`: the receiver shall say so, too.
Message Introduction(const ExchangeAddress& here, bool asks);

// Whether a message with the tensor's bytes follows its description.
bool HasContent(const Found& found);

Message DescriptionOf(const Found& found);

// Allocates the tensor. Fails for a description that DescriptionOf can't have made, and where there
// is no memory.
Status ReadDescription(const Message& message, Found* found);

}  // namespace wire
}  // namespace trepak

#endif  // TREPAK_OPS_GERYON_SERVER_GERYON_WIRE_H_
