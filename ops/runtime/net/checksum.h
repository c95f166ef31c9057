// Tells whether bytes have changed.

#ifndef TREPAK_OPS_RUNTIME_NET_CHECKSUM_H_
#define TREPAK_OPS_RUNTIME_NET_CHECKSUM_H_

#include <sodium.h>

#include <cstddef>
#include <cstdint>

namespace trepak {

// SipHash-2-4 with a key of zeros: 64 bits. May be called from any thread.
inline uint64_t Checksum(const char* data, size_t bytes) {
  static const unsigned char kKey[crypto_shorthash_KEYBYTES] = {};
  uint64_t sum = 0;
  static_assert(sizeof sum == crypto_shorthash_BYTES);
  // Zero bytes may come with no address, and libsodium adds to the one it gets.
  const char* const from = bytes == 0 ? "" : data;
  crypto_shorthash(reinterpret_cast<unsigned char*>(&sum),
                   reinterpret_cast<const unsigned char*>(from), bytes, kKey);
  return sum;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_CHECKSUM_H_
