// Memory for rows that the processor does not address: an accelerator's.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_DEVICE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_requests.h"

namespace trepak {

// The memory of one device for the fast tier of one store. It is one array of numbers, and shards
// have parts of it.
//
// Thread safety: Read may be called from many threads at once; Write needs to be alone.
class EmbeddingDevice {
 public:
  // Where a shard's slots lie: one behind the other, from a multiple of kAlignment on.
  struct Part {
    size_t begin = 0;  // in numbers
    size_t slots = 0;
    size_t record = 0;  // numbers of a slot
  };
  static constexpr size_t kAlignment = 16;

  EmbeddingDevice() = default;
  EmbeddingDevice(const EmbeddingDevice&) = delete;
  EmbeddingDevice& operator=(const EmbeddingDevice&) = delete;
  virtual ~EmbeddingDevice() = default;

  // Takes memory for so many numbers, of which nothing is known; once, before all else. Fails if
  // there is not enough.
  virtual Status Take(size_t numbers) = 0;

  // Copies slots of a part to where the processor has them, one behind the other; and back. No slot
  // is written twice at once. Whatever is called next sees what was written.
  virtual Status Read(const Part& part, Span<int32_t> slots, float* rows) = 0;
  virtual Status Write(const Part& part, Span<int32_t> slots, const float* rows) = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_DEVICE_H_
