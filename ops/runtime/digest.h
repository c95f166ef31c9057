// Digests of bytes, by which ranks find out that they hold the same values.

#ifndef TREPAK_OPS_RUNTIME_DIGEST_H_
#define TREPAK_OPS_RUNTIME_DIGEST_H_

#include <cstddef>
#include <cstdint>

namespace trepak {

// Returns XXH3's 64 bits of `size` bytes, the same on every machine of one byte order. Reads them
// once, at about the speed of memory. Thread safety: a pure function.
[[nodiscard]] uint64_t Digest(const void* data, size_t size);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DIGEST_H_
