#include "ops/runtime/net/message.h"

#include <cstring>
#include <string>

namespace trepak {
namespace {

Status Malformed(const std::string& what) { return InvalidArgumentError("a message " + what); }

}  // namespace

HeaderBytes Encode(const Header& header, size_t payload_bytes) {
  Header sent = header;
  sent.payload_bytes = payload_bytes;
  HeaderBytes bytes;
  std::memcpy(bytes.data(), &sent, sizeof(sent));
  return bytes;
}

Status Decode(std::string_view bytes, size_t payload_bytes, Header* header) {
  if (bytes.size() != kHeaderBytes) {
    return Malformed("has a header of " + std::to_string(bytes.size()) + " bytes, not " +
                     std::to_string(kHeaderBytes));
  }
  Header got;
  std::memcpy(&got, bytes.data(), sizeof(got));
  if (got.magic != Header().magic) {
    return Malformed("is not trepak's");
  }
  if (got.version != Header().version) {
    return Malformed("is of protocol version " + std::to_string(got.version) + ", this is " +
                     std::to_string(Header().version) + ": use one version of trepak on all ranks");
  }
  const auto type = static_cast<size_t>(got.type);
  if (type >= kElementBytes.size()) {
    return Malformed("has elements of the unknown type " + std::to_string(type));
  }
  if (got.payload_bytes != payload_bytes) {
    return Malformed("announces " + std::to_string(got.payload_bytes) + " bytes and brings " +
                     std::to_string(payload_bytes));
  }
  const size_t element = SizeOf(got.type);
  if (element != 0 && payload_bytes % element != 0) {
    return Malformed("brings " + std::to_string(payload_bytes) + " bytes, no whole number of " +
                     std::to_string(element) + "-byte elements");
  }
  *header = got;
  return OkStatus();
}

}  // namespace trepak
