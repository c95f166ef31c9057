#include "ops/runtime/net/message.h"

#include <cstring>
#include <string>

namespace trepak {
namespace {

constexpr uint32_t kMagic = 0x4b505254;  // "TRPK"
constexpr uint8_t kVersion = 3;

// Writes and reads integers at increasing offsets, little endian on any host.
class Writer {
 public:
  explicit Writer(unsigned char* at) : at_(at) {}
  template <typename Integer>
  void Put(Integer value) {
    for (size_t i = 0; i < sizeof(value); ++i) {
      *at_++ = static_cast<unsigned char>(static_cast<uint64_t>(value) >> (8 * i));
    }
  }

 private:
  unsigned char* at_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename Integer>
  Integer Get() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[at_++])) << (8 * i);
    }
    return static_cast<Integer>(value);
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

Status Malformed(const std::string& what) { return InvalidArgumentError("a message " + what); }

}  // namespace

HeaderBytes Encode(const Header& header, size_t payload_bytes) {
  HeaderBytes bytes{};
  Writer writer(bytes.data());
  writer.Put(kMagic);
  writer.Put(kVersion);
  writer.Put(static_cast<uint8_t>(header.type));
  writer.Put(header.kind);
  writer.Put(header.flags);
  writer.Put(header.priority);
  writer.Put(header.order);
  writer.Put(header.sender);
  writer.Put(header.key);
  writer.Put(header.slice);
  writer.Put(header.round);
  writer.Put(header.sequence);
  writer.Put(header.token);
  writer.Put(static_cast<uint64_t>(payload_bytes));
  return bytes;
}

Status Decode(std::string_view bytes, size_t payload_bytes, Header* header) {
  if (bytes.size() != kHeaderBytes) {
    return Malformed("has a header of " + std::to_string(bytes.size()) + " bytes, not " +
                     std::to_string(kHeaderBytes));
  }
  Reader reader(bytes);
  if (reader.Get<uint32_t>() != kMagic) {
    return Malformed("is not trepak's");
  }
  const auto version = reader.Get<uint8_t>();
  if (version != kVersion) {
    return Malformed("is of protocol version " + std::to_string(version) + ", this is " +
                     std::to_string(kVersion) + ": use one version of trepak on all ranks");
  }
  const auto type = reader.Get<uint8_t>();
  if (type >= kElementBytes.size()) {
    return Malformed("has elements of the unknown type " + std::to_string(type));
  }
  header->type = static_cast<ElementType>(type);
  header->kind = reader.Get<MessageKind>();
  header->flags = reader.Get<uint8_t>();
  header->priority = reader.Get<uint8_t>();
  header->order = reader.Get<uint16_t>();
  header->sender = reader.Get<uint32_t>();
  header->key = reader.Get<uint32_t>();
  header->slice = reader.Get<uint32_t>();
  header->round = reader.Get<uint64_t>();
  header->sequence = reader.Get<uint64_t>();
  header->token = reader.Get<uint64_t>();
  const auto announced = reader.Get<uint64_t>();
  if (announced != payload_bytes) {
    return Malformed("announces " + std::to_string(announced) + " bytes and brings " +
                     std::to_string(payload_bytes));
  }
  const size_t element = SizeOf(header->type);
  if (element != 0 && payload_bytes % element != 0) {
    return Malformed("brings " + std::to_string(payload_bytes) + " bytes, no whole number of " +
                     std::to_string(element) + "-byte elements");
  }
  return OkStatus();
}

}  // namespace trepak
