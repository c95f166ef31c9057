// Where tensors lie while they are swapped out: in the host's memory, or in a file.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_SWAP_TIER_H_
#define TREPAK_OPS_RUNTIME_DYMEM_SWAP_TIER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/runtime/net/status.h"

namespace trepak {

// Thread safety: every method may be called from any thread, and copies of different slots run at
// the same time. Who has taken a slot owns it until it is given back: no two threads may use one
// slot at once.
class SwapTier {
 public:
  // For a file as large as its folder lets it become.
  static constexpr size_t kNoLimit = SIZE_MAX / 4;

  // Room for one tensor. Only the tier that made it knows what `begin` means.
  struct Slot {
    size_t begin = 0;
    size_t bytes = 0;
  };

  virtual ~SwapTier() = default;

  // Takes room. ResourceExhausted if the tier is full, which leaves everything as it was.
  virtual Status Take(size_t bytes, Slot* slot) = 0;
  // Copies the first `bytes` of a slot, at most its own. A write that fails leaves the slot with
  // bytes of no meaning, still to be given back.
  virtual Status Write(const Slot& slot, const char* from, size_t bytes) = 0;
  virtual Status Read(const Slot& slot, char* to, size_t bytes) = 0;
  // Internal if it isn't taken.
  virtual Status Give(const Slot& slot) = 0;

  // Whether slots are memory of the processor's. If so, who copies bytes there by itself may keep
  // them in memory of its own, and only takes the room.
  virtual bool is_memory() const = 0;
  virtual size_t limit() const = 0;
  // What slots take, rounded up to what the tier deals in: now, and the most at once.
  virtual size_t used() const = 0;
  virtual size_t peak() const = 0;
  // What the tier keeps of memory or disk, used or not, so that no step has to ask the system anew.
  // It is never more than the limit, and near the peak.
  virtual size_t held() const = 0;
};

// In memory of this process. The limit is what it may hold; only address space is taken before
// tensors come. Fails if the system won't give as much of that.
Status MakeMemoryTier(size_t limit, std::unique_ptr<SwapTier>* made);

// In a file of its own, without a name, in that folder. What was written is out of the kernel's
// cache when Write returns: else the cache would take the memory that swapping is to free, and in a
// container it counts as the container's. A folder in memory (tmpfs) can't do that, and saves none.
// FailedPrecondition, naming the folder, if no file can be made there.
Status MakeFileTier(const std::string& folder, size_t limit, std::unique_ptr<SwapTier>* made);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_SWAP_TIER_H_
