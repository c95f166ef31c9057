// For tests: traces of steps, as if TensorFlow had run them.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_REPLAY_TESTING_H_
#define TREPAK_OPS_RUNTIME_DYMEM_REPLAY_TESTING_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
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

constexpr unsigned kRandomCases = 40;
inline const std::vector<SwapPolicy> kPolicies = {SwapPolicy::kNone, SwapPolicy::kVdnn,
                                                  SwapPolicy::kSuperNeurons, SwapPolicy::kDymem};

// A step whose nodes take times and memory as they come.
struct RandomCase {
  explicit RandomCase(unsigned seed) : step(RandomStep(seed)), random(seed) {
    for (const StepNode& node : step.graph().nodes) {
      seconds[node.name] = Uniform(0.1, 1);
      // Few are small.
      bytes[node.name] = random() % 8 == 0 ? random() % 5000 : 4096 + random() % 60'000;
    }
    bytes["weights"] = 20'000;
    link = Uniform(20'000, 400'000);
    scratch = random() % 2 == 0 ? 0 : 4096 + random() % 60'000;
    trace = TraceOf(
        step, [&](const std::string& name) { return bytes.at(name); }, scratch);
  }

  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }

  ReplayProgram Program(SwapPolicy policy, double faster = 1) const {
    const auto work = WorkOf(step, [&](const std::string& name) { return seconds.at(name); });
    return MakeReplayProgram(step.graph(), work, trace, policy, {1, 1, link * faster});
  }

  const TestStep step;
  std::mt19937 random;
  std::map<std::string, double> seconds;
  std::map<std::string, size_t> bytes;
  double link = 0;
  size_t scratch = 0;
  AllocationTrace trace;
};

// Of each case and policy, until one fails.
template <typename Test>
void ForEachCase(const Test& test) {
  for (unsigned seed = 0; seed < kRandomCases && !testing::Test::HasFailure(); ++seed) {
    const RandomCase random(seed);
    for (const SwapPolicy policy : kPolicies) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", policy " +
                   std::to_string(static_cast<int>(policy)));
      test(random, policy);
    }
  }
}

constexpr double kClose = 1e-9;  // seconds

inline void ExpectBounds(const ReplayFigures& figures) {
  for (const ReplayPass& pass : {figures.forward, figures.backward}) {
    EXPECT_GE(pass.taken, pass.bound - kClose);
    EXPECT_GE(pass.bound, pass.computed - kClose);
  }
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_REPLAY_TESTING_H_
