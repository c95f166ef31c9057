#include "ops/runtime/net/flow.h"

#include <string>

namespace trepak {

Status Flow::Send(Message message) {
  // Held over the transport's Send: numbers must be given in the order of sending.
  std::lock_guard<std::mutex> lock(mutex_);
  message.header.sender = sender_;
  message.header.priority = priority_;
  uint64_t& next = next_sequence_[message.header.order];
  message.header.sequence = next;
  const size_t size = message.payload.size();
  TREPAK_RETURN_IF_ERROR(transport_->Send(peer_, priority_, std::move(message)));
  ++next;
  bytes_ += size;
  return OkStatus();
}

uint64_t Flow::bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

Status SequenceCheck::Check(const Header& header) {
  uint64_t& next = next_[{header.sender, header.priority, header.order}];
  if (header.sequence != next) {
    return InternalError("message " + std::to_string(header.sequence) + " of rank " +
                         std::to_string(header.sender) + "'s flow of priority " +
                         std::to_string(header.priority) + " came where " + std::to_string(next) +
                         " was due: one was lost, doubled or overtaken");
  }
  ++next;
  return OkStatus();
}

}  // namespace trepak
