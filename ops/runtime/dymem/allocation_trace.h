// What a training step asked of the memory pool, in order: what a replay needs to run the step
// again with other swaps, another pool, another batch.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_ALLOCATION_TRACE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_ALLOCATION_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/runtime/net/status.h"

namespace trepak {

struct AllocationTrace {
  struct Block {
    std::string node;  // whose memory it is; empty if that is not known
    size_t bytes = 0;
    bool is_scratch = false;
    // Names of the tensors in it that the graph pass had leave: several nodes may share memory.
    std::vector<std::string> swapped;
  };
  struct Event {
    int block = 0;
    bool is_free = false;
  };

  int64_t batch = 0;
  std::vector<Block> blocks;  // the first `before` of them were there when the step began
  int before = 0;
  std::vector<Event> events;
};

// Writes down allocations. Thread safety: every method may be called from any thread.
class AllocationRecorder {
 public:
  void Allocated(const void* memory, const std::string& node, size_t bytes, bool is_scratch);
  void Freed(const void* memory);
  // A tensor that lies there would leave now, if it were not a trace. Memory that is not the
  // pool's is nobody's.
  void Swapped(const void* memory, const std::string& name);

  // Forgets the events so far, but not what lives.
  void Begin();
  AllocationTrace End(int64_t batch);

 private:
  std::mutex mutex_;
  // Guarded by mutex_.
  bool records_ = false;
  std::unordered_map<const void*, int> blocks_;  // that live, by address
  std::vector<AllocationTrace::Block> all_;
  int before_ = 0;
  std::vector<AllocationTrace::Event> events_;
};

// What the same step asks for with another batch: sizes grow linearly from `small`'s to `large`'s.
// A block of the one is that block of the other which its node asks for at the same turn. One
// without counterpart keeps its size. Fails if the batches are equal, or too much has none.
Status Extrapolate(const AllocationTrace& small, const AllocationTrace& large, int64_t batch,
                   AllocationTrace* made);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_ALLOCATION_TRACE_H_
