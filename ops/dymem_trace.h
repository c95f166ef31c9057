// Traces of training steps, and the graphs that they ran.

#ifndef TREPAK_OPS_DYMEM_TRACE_H_
#define TREPAK_OPS_DYMEM_TRACE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/runtime/dymem/allocation_trace.h"
#include "ops/runtime/dymem/replay_program.h"
#include "ops/runtime/dymem/step_graph.h"

namespace trepak {

struct TracedGraph {
  StepGraph step;
  std::vector<NodeWork> work;  // by node
};

// Thread safety: every method may be called from any thread.
class DymemTrace {
 public:
  AllocationRecorder& recorder() { return recorder_; }

  // The last one that trains is the one whose steps are traced.
  void SetGraph(TracedGraph graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    graph_ = std::make_shared<const TracedGraph>(std::move(graph));
  }
  // Null if there is none yet.
  std::shared_ptr<const TracedGraph> graph() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return graph_;
  }

  void Keep(AllocationTrace trace) {
    std::lock_guard<std::mutex> lock(mutex_);
    traces_[trace.batch] = std::move(trace);
  }
  // By batch.
  std::map<int64_t, AllocationTrace> traces() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return traces_;
  }

 private:
  AllocationRecorder recorder_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const TracedGraph> graph_;
  std::map<int64_t, AllocationTrace> traces_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_TRACE_H_
