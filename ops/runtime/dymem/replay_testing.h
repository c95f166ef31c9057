// For tests: traces of steps, as if TensorFlow had run them.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_REPLAY_TESTING_H_
#define TREPAK_OPS_RUNTIME_DYMEM_REPLAY_TESTING_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/runtime/dymem/allocation_trace.h"
#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/memory_pool.h"
#include "ops/runtime/dymem/replay.h"
#include "ops/runtime/dymem/step_graph_testing.h"
#include "ops/runtime/dymem/swap_plan.h"

namespace trepak {

constexpr size_t kKilo = 1024;

inline SwapPlan PlanOf(const TestStep& step, SwapPolicy policy) {
  return PlanSwaps(step.graph(), ExecutionOrder(step.graph()), policy);
}

// Each node takes memory for its result when it begins, and for scratch if there is any. When it
// ends, it frees its scratch and what nobody reads any more; gradients of filters stay. "weights"
// are there before.
inline AllocationTrace TraceOf(const TestStep& step,
                               const std::function<size_t(const std::string&)>& bytes_of,
                               size_t scratch = 0) {
  const StepGraph& graph = step.graph();
  const SwapPlan plan = PlanOf(step, SwapPolicy::kDymem);
  AllocationTrace trace;
  trace.batch = 1;
  trace.before = 1;
  trace.blocks.push_back({"", bytes_of("weights"), false, {}});
  std::vector<int> block_of(graph.tensors.size(), -1);
  std::vector<size_t> reads(graph.tensors.size());
  const auto allocate = [&](const std::string& node, size_t bytes, bool is_scratch) {
    trace.blocks.push_back({node, bytes, is_scratch, {}});
    const int block = static_cast<int>(trace.blocks.size()) - 1;
    trace.events.push_back({block, false});
    return block;
  };
  for (const int node : plan.chain) {
    const std::string& name = graph.nodes[node].name;
    const int scratch_block = scratch == 0 ? -1 : allocate(name, scratch, true);
    block_of[node] = allocate(name, bytes_of(name), false);
    if (scratch_block >= 0) {
      trace.events.push_back({scratch_block, true});
    }
    for (const int tensor : graph.nodes[node].inputs) {
      if (++reads[tensor] == graph.tensors[tensor].consumers.size()) {
        trace.events.push_back({block_of[tensor], true});
      }
    }
    if (graph.tensors[node].consumers.empty() && graph.Makes(node)) {
      trace.events.push_back({block_of[node], true});
    }
  }
  for (const Swap& swap : plan.swaps) {
    trace.blocks[block_of[swap.tensor]].swapped = {graph.NameOf(swap.tensor)};
  }
  return trace;
}

// Of nodes that take so many seconds on a machine that does one operation in each.
inline std::vector<NodeWork> WorkOf(const TestStep& step,
                                    const std::function<double(const std::string&)>& seconds_of) {
  std::vector<NodeWork> work;
  for (const StepNode& node : step.graph().nodes) {
    work.push_back({seconds_of(node.name), 0, 0, 0});
  }
  return work;
}

// Where nothing is ever short.
inline ReplayOptions Ample(PoolKind kind = PoolKind::kGtbm) {
  ReplayOptions options;
  options.kind = kind;
  options.limit = size_t{1} << 40;
  return options;
}

// What a block takes of a pool.
inline size_t Placed(size_t bytes) {
  constexpr size_t kGranule = Placement::kGranularity;
  return bytes < MemoryPool::kSmall ? bytes : (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_REPLAY_TESTING_H_
