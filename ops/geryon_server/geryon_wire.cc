#include "ops/geryon_server/geryon_wire.h"

#include <algorithm>
#include <cstring>

#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/status.h"

namespace trepak {

std::string ExchangeAddress::Encode() const {
  std::string bytes(sizeof(id), '\0');
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes + std::string(secret.begin(), secret.end()) + transport;
}

bool ExchangeAddress::Decode(std::string_view bytes) {
  if (bytes.size() <= sizeof(id) + secret.size()) {
    return false;
  }
  std::memcpy(&id, bytes.data(), sizeof(id));
  std::copy_n(bytes.begin() + sizeof(id), secret.size(), secret.begin());
  transport = std::string(bytes.substr(sizeof(id) + secret.size()));
  return true;
}

namespace wire {
namespace {

// Further flags of an answer's first message.
constexpr uint8_t kDead = 2;
constexpr uint8_t kNotCarried = 4;
constexpr uint8_t kFailed = 8;    // the payload says why, the header's key is the error's code
constexpr uint8_t kDerived = 16;  // another error led to this one, which TensorFlow then shows

}  // namespace

bool HasContent(const Found& found) {
  return found.status.ok() && found.carried && !found.is_dead && found.tensor.TotalBytes() > 0;
}

Message Introduction(const ExchangeAddress& here, bool asks) {
  Message message;
  message.header.kind = wire::kAddress;
  message.header.flags = asks ? kAsks : 0;
  message.payload = Payload::Copy(here.Encode());
  return message;
}

Message DescriptionOf(const Found& found) {
  Message message;
  message.header.kind = wire::kTensor;
  message.header.flags = kDescription | (found.is_dead ? kDead : 0) |
                         (found.carried ? 0 : kNotCarried) | (found.status.ok() ? 0 : kFailed);
  if (!found.status.ok()) {
    message.header.flags |= tensorflow::StatusGroup::IsDerived(found.status) ? kDerived : 0;
    message.header.key = static_cast<uint32_t>(found.status.raw_code());
    message.payload = Payload::Copy(found.status.message());
  } else if (found.carried && !found.is_dead) {
    tensorflow::TensorProto description;
    description.set_dtype(found.tensor.dtype());
    found.tensor.shape().AsProto(description.mutable_tensor_shape());
    message.payload = Payload::Copy(description.SerializeAsString());
  }
  return message;
}

Status ReadDescription(const Message& message, Found* found) {
  const uint8_t flags = message.header.flags;
  const std::string_view bytes = message.payload.view();
  if ((flags & kFailed) != 0) {
    const absl::Status status(static_cast<absl::StatusCode>(message.header.key), bytes);
    if (status.ok()) {
      return InvalidArgumentError("an answer fails without an error");
    }
    found->status = (flags & kDerived) != 0 ? tensorflow::StatusGroup::MakeDerived(status) : status;
    return OkStatus();
  }
  found->is_dead = (flags & kDead) != 0;
  found->carried = (flags & kNotCarried) == 0;
  if (found->is_dead || !found->carried) {
    return OkStatus();
  }
  tensorflow::TensorProto description;
  tensorflow::TensorShape shape;
  if (!description.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      !tensorflow::DataTypeCanUseMemcpy(description.dtype()) ||
      !tensorflow::TensorShape::BuildTensorShape(description.tensor_shape(), &shape).ok()) {
    return InvalidArgumentError("an answer describes no tensor that can travel");
  }
  found->tensor = tensorflow::Tensor(description.dtype(), shape);
  if (found->tensor.TotalBytes() > 0 && !found->tensor.IsInitialized()) {
    return ResourceExhaustedError("there is no memory for a tensor of " + shape.DebugString());
  }
  return OkStatus();
}

}  // namespace wire
}  // namespace trepak
