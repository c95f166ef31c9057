// Bytes that somebody owns: a message's content, passed on without copying.

#ifndef TREPAK_OPS_RUNTIME_NET_PAYLOAD_H_
#define TREPAK_OPS_RUNTIME_NET_PAYLOAD_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace trepak {

// A view of bytes that keeps their owner alive: a tensor's buffer, a received message. Copies share
// the owner. Thread safety: as a shared_ptr; who writes through mutable_data must be the only user.
class Payload {
 public:
  Payload() = default;

  // Views `size` bytes at `data`, which `owner` keeps.
  Payload(void* data, size_t size, std::shared_ptr<void> owner)
      : data_(data), size_(size), owner_(std::move(owner)) {}

  // Of memory that Allocate makes: what TensorFlow wants of a tensor's.
  static constexpr std::align_val_t kAlignment{64};

  // Owns `size` bytes of its own, with no defined content.
  static Payload Allocate(size_t size) {
    std::shared_ptr<void> memory(::operator new(size, kAlignment),
                                 [](void* p) { ::operator delete(p, kAlignment); });
    void* const data = memory.get();
    return Payload(data, size, std::move(memory));
  }

  // Owns a copy of bytes.
  static Payload Copy(const void* data, size_t size) {
    Payload payload = Allocate(size);
    std::copy_n(static_cast<const char*>(data), size, static_cast<char*>(payload.data_));
    return payload;
  }
  static Payload Copy(std::string_view bytes) { return Copy(bytes.data(), bytes.size()); }

  const void* data() const { return data_; }
  void* mutable_data() { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {static_cast<const char*>(data_), size_}; }

  // Returns a view of a part of it, with the same owner. The part must lie inside.
  Payload Part(size_t offset, size_t size) const {
    return Payload(static_cast<char*>(data_) + offset, size, owner_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<void> owner_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_PAYLOAD_H_
