// Memory of one process that tensors share, never more than a limit.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_MEMORY_POOL_H_
#define TREPAK_OPS_RUNTIME_DYMEM_MEMORY_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/runtime/dymem/memory_curve.h"
#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/net/status.h"
#include "ops/runtime/observe/timeline.h"

namespace trepak {

struct PoolOptions {
  PoolKind kind = PoolKind::kGtbm;
  size_t limit = 0;  // bytes, beta included
  size_t beta = 0;   // bytes that are kept back until the rest is not enough
  // The pool finds its size (section 4.1.3.3): all of the limit is there until Fit() lowers it to
  // what was needed and beta. From then on, each shortage raises it by another beta, or by what the
  // tensor takes if that is more, up to where it began. No beta: a part of what was needed.
  bool finds_limit = false;
  Timeline* timeline = &Timeline::Global();  // shows how full it is; outlives the pool
};

// What to do when there is no room.
enum class Patience {
  kTry,      // nothing: the caller asks again later
  kWait,     // wait for memory that is being released
  kScratch,  // take it from outside: a kernel's scratch is never failed
};

struct PoolFigures {
  size_t limit = 0;          // now
  size_t beta = 0;           // of it, what is kept back still
  size_t live = 0;           // bytes of tensors now, small ones included
  size_t peak_live = 0;      // since the last reset
  size_t occupied = 0;       // bytes of the address range in use, holes included
  size_t peak_occupied = 0;  // since the last reset
  size_t small = 0;          // of live: what the C library holds, as it is too small to place
  size_t peak_small = 0;     // occupied is at most so much above the limit
  size_t outside = 0;        // kernels' scratch that found no room, now
  size_t peak_outside = 0;
  int64_t allocations = 0;
  int64_t shortages = 0;  // times that beta, or another one, was committed
  int64_t waits = 0;      // times that somebody waited for a release
  int64_t failures = 0;   // tensors that found no room
  double waited_seconds = 0;
  double fragmentation = 0;  // equation 4.1, now, for one like the last that was placed
  // Equation 4.1 for each that was placed, just before, since the last reset.
  double mean_fragmentation = 0;
  double worst_fragmentation = 0;
};

// Whom the pool asks for memory at a shortage.
class PoolRelief {
 public:
  PoolRelief() = default;
  PoolRelief(const PoolRelief&) = delete;
  PoolRelief& operator=(const PoolRelief&) = delete;
  virtual ~PoolRelief() = default;

  // How often memory was released so far.
  virtual int64_t releases() const = 0;
  // Waits until there are more of them. False if none will come.
  virtual bool WaitForRelease(std::chrono::steady_clock::time_point deadline, int64_t releases) = 0;
};

// Places tensors in reserved addresses, by the rules of one Placement. The limit holds for the
// addresses in use, holes included, and so for what the process has of them in memory.
//
// Owns the addresses. Thread safety: every method may be called from any thread.
class MemoryPool {
 public:
  // Smaller ones are left to the C library, and counted: a scalar that lives long would keep a
  // region from shrinking. They are never refused; tensors that are placed get what they leave.
  static constexpr size_t kSmall = 4096;
  static constexpr size_t kAlignment = 64;
  // Of a pool, beta takes one by default, as the thesis's 300 MB are to its 10 GB.
  static constexpr size_t kBetaPart = 32;

  // Fails if so many addresses can't be reserved.
  static Status Make(const PoolOptions& options, std::unique_ptr<MemoryPool>* made);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Whom to ask at a shortage; it outlives the pool. Once, before the first allocation waits.
  void set_relief(PoolRelief* relief) { relief_ = relief; }

  // Null if there is no room. At a shortage beta is committed first, then releases are waited for.
  void* Allocate(const Placement::Request& request, Patience patience);
  void Free(void* memory);

  // A whole iteration has run: a pool that finds its limit lowers it, once. Others have theirs.
  void Fit();

  PoolFigures figures() const;
  size_t live() const;  // bytes of tensors now
  size_t limit() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return figures_.limit;
  }
  // How full it was since the last reset, which is the first point.
  std::vector<MemoryPoint> curve() const;
  // Has peaks, the curve and the fragmentation begin anew.
  void ResetPeaks();
  // What lies where, in a few lines, for errors.
  std::string Map() const;

 private:
  explicit MemoryPool(const PoolOptions& options);

  bool Owns(const void* memory) const {
    return memory >= base_ && memory < base_ + placement_->offsets();
  }
  // Null if there is no room now. Under mutex_.
  void* Place(const Placement::Request& request);
  // Notes how full it is. Under mutex_.
  void Record();
  void Show(const MemoryPoint& now);
  void* TakeSmall(size_t bytes);
  void* TakeOutside(size_t bytes);
  // For a tensor that has no room. Whether there was some left. Under mutex_.
  bool CommitBeta(size_t bytes);
  // Waits until memory may have been freed. False if that is not to be expected.
  bool Wait(int64_t releases, int64_t frees);
  // Marks pages as in memory; gives others back to the system if that is more than the limit.
  // Under mutex_.
  void Touch(size_t offset, size_t bytes);
  void GiveBack();

  const PoolOptions options_;
  char* base_ = nullptr;
  PoolRelief* relief_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable freed_;
  // Guarded by mutex_.
  std::unique_ptr<Placement> placement_;
  size_t beta_;
  size_t reserve_;          // by how much the limit may still be raised
  bool finds_limit_;        // it is still to be lowered
  size_t peak_extent_ = 0;  // of all regions and what is small, ever
  size_t last_bytes_ = 0;   // of the last request that was placed
  int64_t frees_ = 0;
  std::vector<bool> is_resident_;  // by piece of kPiece bytes
  size_t resident_pieces_ = 0;
  PoolFigures figures_;
  MemoryCurve curve_;
  MemoryPoint shown_;             // in the timeline, last
  double fragmentation_sum_ = 0;  // since the last reset, of so many:
  int64_t fragmentation_of_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_MEMORY_POOL_H_
