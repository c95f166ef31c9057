// What Dymem has in this process: one pool for TensorFlow's tensors, one engine that swaps them,
// and what the graph pass found out about them.

#ifndef TREPAK_OPS_DYMEM_H_
#define TREPAK_OPS_DYMEM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/dymem_trace.h"
#include "ops/runtime/dymem/memory_pool.h"
#include "ops/runtime/dymem/mobility.h"
#include "ops/runtime/dymem/swap_engine.h"
#include "ops/runtime/dymem/swap_plan.h"
#include "ops/runtime/dymem/unread_tensors.h"
#include "ops/runtime/dymem/wait_clock.h"

namespace trepak {

struct DymemOptions {
  PoolOptions pool;
  SwapPolicy policy = SwapPolicy::kDymem;
  std::string policy_name;  // the same, as it was given
  bool checksums = false;
  double link_bytes_per_second = 0;  // emulated; 0: as fast as it can
  bool always_swaps = false;         // also if the step fits into the pool
  bool traces = false;  // steps are for replays: nothing leaves, but all that could is told
};

// What the pass did to one graph.
struct DymemPlan {
  std::string graph;
  int64_t layers = 0;  // nodes that touch feature maps; none: the graph is as it was
  int64_t swapped = 0;
  int64_t waits = 0;       // layers that wait until copies are done
  std::string left_alone;  // what; empty if nothing was
};

// What the pass says of a node.
struct NodeFacts {
  TensorGroup group;      // of its tensors; reclaimed, if the pass has not seen it
  bool is_blind = false;  // its kernel does not look whether it got memory
};

// Thread safety: every method may be called from any thread.
class Dymem : public PoolRelief {
 public:
  // Makes it this process's, for good: tensors may live as long as the process.
  static Dymem* Make(const DymemOptions& options, std::unique_ptr<MemoryPool> pool,
                     std::unique_ptr<SwapTier> tier);
  // Null if there is none.
  static Dymem* Global();

  const DymemOptions& options() const { return options_; }
  MemoryPool& pool() { return *pool_; }
  SwapEngine& engine() { return *engine_; }
  // Null unless it is asked for.
  DymemTrace* trace() { return trace_.get(); }
  UnreadTensors& unread() { return unread_; }
  // Whether a step that fits stays in memory.
  bool MayStay() const {
    return !options_.traces && !options_.always_swaps && options_.policy == SwapPolicy::kDymem;
  }
  // Steps that stayed in memory whole so far.
  int64_t kept_steps() const { return kept_steps_; }
  void CountKept(int steps) { kept_steps_ += steps; }
  // Bytes that live or are away.
  size_t needed() const;

  int64_t releases() const override { return engine_->releases(); }
  // If no offload is under way, what was prefetched leaves again, the tensor needed last first.
  bool WaitForRelease(std::chrono::steady_clock::time_point deadline, int64_t releases) override;
  // The computation's, for copies.
  WaitClock& waits() { return waits_; }

  // Keeps what the pass says of the outputs of nodes, by name. Says once if anything is left alone.
  void AddPlan(DymemPlan plan, const std::unordered_map<std::string, TensorGroup>& groups,
               const std::vector<std::string>& blind);
  std::vector<DymemPlan> plans() const;
  // Of all graphs' nodes so far; each allocation asks.
  NodeFacts FactsOf(std::string_view node) const;

  // What TensorFlow says where there is no step: of eager tensors, and of datasets'.
  static constexpr int64_t kNoStep = 0;

  // A step whose tensor found no room must fail. Some kernels don't look whether they got memory:
  // they get it from outside, and the step fails at the next one that looks. `node`: empty if that
  // is not known. Says so on the error stream, with a map of the pool, once for each step.
  void Doom(int64_t step, std::string_view node, size_t bytes);
  // What was said there last, once; empty if nothing was since.
  std::string TakeShortage();
  // Why; OK if it is not doomed.
  Status DoomOf(int64_t step) const;

 private:
  Dymem(const DymemOptions& options, std::unique_ptr<MemoryPool> pool,
        std::unique_ptr<SwapTier> tier);

  // Empty if all did that was to; for errors.
  std::string WhyNothingLeft() const;

  const DymemOptions options_;
  const std::unique_ptr<MemoryPool> pool_;
  const std::unique_ptr<SwapEngine> engine_;
  const std::unique_ptr<DymemTrace> trace_;
  UnreadTensors unread_;
  WaitClock waits_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<DymemPlan> plans_;
  bool has_left_alone_ = false;  // anything; said once
  Status doom_;
  std::string shortage_;

  std::atomic<int64_t> kept_steps_{0};
  std::atomic<int64_t> doomed_step_{kNoStep};  // the last one; changed under mutex_

  // Each allocation reads.
  mutable std::shared_mutex nodes_mutex_;
  // Guarded by nodes_mutex_.
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string_view, NodeFacts> nodes_;
};

// Makes the graph pass known to TensorFlow; once, since a second time ends the process. Not when
// the library is loaded: a second copy of it is an error, and no end.
void RegisterDymemPass();

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_H_
