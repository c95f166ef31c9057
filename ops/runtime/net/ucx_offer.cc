#include "ops/runtime/net/ucx_offer.h"

#include <sys/uio.h>

#include <cstring>

namespace trepak {
namespace {

// Before an address, as it lies in memory.
struct OfferOnWire {
  uint64_t token;
  uint64_t token_at;
  int32_t process;
  uint16_t must_read;
  uint16_t host_bytes;  // of the host, which goes before the address
};
static_assert(std::has_unique_object_representations_v<OfferOnWire>, "no padding");
using AnswerOnWire = uint32_t;

Status WithoutAddress(const Message& message) {
  return InvalidArgumentError("rank " + std::to_string(message.header.sender) +
                              " speaks of UCX in " + std::to_string(message.payload.size()) +
                              " bytes, which have no address");
}

template <typename Fixed>
Message Joined(MessageKind kind, const Fixed& fixed, const std::string& address) {
  Message message;
  message.header.kind = kind;
  message.payload = Payload::Allocate(sizeof(fixed) + address.size());
  char* const at = static_cast<char*>(message.payload.mutable_data());
  std::memcpy(at, &fixed, sizeof(fixed));
  std::memcpy(at + sizeof(fixed), address.data(), address.size());
  return message;
}

template <typename Fixed>
Status Split(const Message& message, Fixed* fixed, std::string* address) {
  const std::string_view bytes = message.payload.view();
  if (bytes.size() <= sizeof(*fixed)) {
    return WithoutAddress(message);
  }
  std::memcpy(fixed, bytes.data(), sizeof(*fixed));
  *address = bytes.substr(sizeof(*fixed));
  return OkStatus();
}

}  // namespace

Message ToMessage(const UcxOffer& offer) {
  return Joined(ucx::kOffer,
                OfferOnWire{offer.token, offer.token_at, offer.process, offer.must_read,
                            static_cast<uint16_t>(offer.host.size())},
                offer.host + offer.address);
}

Status FromMessage(const Message& message, UcxOffer* offer) {
  OfferOnWire wire{};
  std::string rest;
  TREPAK_RETURN_IF_ERROR(Split(message, &wire, &rest));
  if (rest.size() <= wire.host_bytes) {
    return WithoutAddress(message);
  }
  offer->host = rest.substr(0, wire.host_bytes);
  offer->address = rest.substr(wire.host_bytes);
  offer->token = wire.token;
  offer->token_at = wire.token_at;
  offer->process = wire.process;
  offer->must_read = wire.must_read != 0;
  return OkStatus();
}

bool CanRead(const UcxOffer& offer) {
  uint64_t token = 0;
  iovec here{&token, sizeof(token)};
  iovec there{};
  std::memcpy(&there.iov_base, &offer.token_at, sizeof(there.iov_base));
  there.iov_len = sizeof(token);
  return process_vm_readv(offer.process, &here, 1, &there, 1, 0) == sizeof(token) &&
         token == offer.token;
}

Message ToMessage(const UcxAnswer& answer, uint64_t token) {
  Message message = Joined(ucx::kAnswer, AnswerOnWire{answer.is_accepted}, answer.address);
  message.header.token = token;
  return message;
}

Status FromMessage(const Message& message, UcxAnswer* answer) {
  AnswerOnWire wire = 0;
  TREPAK_RETURN_IF_ERROR(Split(message, &wire, &answer->address));
  answer->is_accepted = wire != 0;
  return OkStatus();
}

}  // namespace trepak
