#include "ops/runtime/dymem/replay_program.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/mobility.h"

namespace trepak {
namespace {

class Compiler {
 public:
  Compiler(const StepGraph& graph, const AllocationTrace& trace, SwapPolicy policy)
      : graph_(graph),
        trace_(trace),
        plan_(PlanSwaps(graph, ExecutionOrder(graph), policy)),
        position_(graph.nodes.size(), -1) {
    for (size_t at = 0; at < plan_.chain.size(); ++at) {
      position_[plan_.chain[at]] = static_cast<int>(at);
      numbers_[graph.nodes[plan_.chain[at]].name] = plan_.chain[at];
    }
    made_.first_backward = plan_.first_backward;
    made_.waits_each_layer = plan_.waits_each_layer;
    made_.before = trace.before;
  }

  ReplayProgram Compile(const std::vector<NodeWork>& work, const ReplayMachine& machine) {
    AddLayers(work, machine);
    AddRequests();
    AddEvents();
    AddCopies(machine);
    return std::move(made_);
  }

 private:
  void AddLayers(const std::vector<NodeWork>& work, const ReplayMachine& machine) {
    const double samples = static_cast<double>(trace_.batch);
    for (const int node : plan_.chain) {
      const NodeWork& of = work[node];
      const double operations = of.operations + of.operations_per_sample * samples;
      const double bytes = of.bytes + of.bytes_per_sample * samples;
      ReplayProgram::Layer layer;
      layer.seconds =
          std::max(operations / machine.operations_per_second, bytes / machine.bytes_per_second);
      made_.layers.push_back(layer);
    }
  }

  void AddRequests() {
    const std::vector<TensorGroup> groups = GroupByMobility(graph_, plan_);
    std::unordered_map<std::string, TensorGroup> by_node;
    for (size_t tensor = 0; tensor < groups.size(); ++tensor) {
      if (graph_.tensors[tensor].is_feature_map) {
        by_node.emplace(graph_.nodes[graph_.tensors[tensor].producer].name, groups[tensor]);
      }
    }
    for (const AllocationTrace::Block& block : trace_.blocks) {
      const auto found = by_node.find(block.node);
      const TensorGroup group = found == by_node.end() ? TensorGroup() : found->second;
      made_.requests.push_back({block.bytes, group.mobility, group.references});
    }
  }

  int PositionOf(const std::string& node) const {
    const auto found = numbers_.find(node);
    return found == numbers_.end() ? -1 : position_[found->second];
  }

  // Of the outputs of a node, by the graph.
  int LastRead(const std::string& node) const {
    const auto found = numbers_.find(node);
    int last = -1;
    if (found != numbers_.end()) {
      for (const int tensor : graph_.nodes[found->second].outputs) {
        for (const int reader : graph_.tensors[tensor].consumers) {
          last = std::max(last, position_[reader]);
        }
      }
    }
    return last;
  }

  // Allocations tell which layer is at work. A block that is freed between two of them may be freed
  // by any layer between, some of which allocate nothing: the last one that reads it.
  void AddEvents() {
    std::vector<ReplayProgram::Event> frees;
    int now = 0;
    const auto flush = [&](int next) {
      for (const ReplayProgram::Event& event : frees) {
        const AllocationTrace::Block& block = trace_.blocks[event.block];
        const int last = block.is_scratch ? now : LastRead(block.node);
        made_.layers[std::clamp(last, now, std::max(now, next - 1))].events.push_back(event);
      }
      frees.clear();
    };
    for (const AllocationTrace::Event& event : trace_.events) {
      if (event.is_free) {
        frees.push_back({event.block, true});
        continue;
      }
      const int at = std::max(now, PositionOf(trace_.blocks[event.block].node));
      flush(at);
      now = at;
      made_.layers[now].events.push_back({event.block, false});
      made_.layers[now].at_begin = made_.layers[now].events.size();
    }
    flush(static_cast<int>(made_.layers.size()));
  }

  void AddCopies(const ReplayMachine& machine) {
    std::unordered_map<std::string, int> block_of;
    for (size_t block = 0; block < trace_.blocks.size(); ++block) {
      for (const std::string& name : trace_.blocks[block].swapped) {
        block_of[name] = static_cast<int>(block);
      }
    }
    made_.copy_of.assign(trace_.blocks.size(), -1);
    for (const Swap& swap : plan_.swaps) {
      const auto found = block_of.find(graph_.NameOf(swap.tensor));
      if (found == block_of.end() || made_.copy_of[found->second] >= 0) {
        continue;  // memory that is not the pool's, or leaves already
      }
      ReplayProgram::Copy copy;
      copy.block = found->second;
      copy.bytes = trace_.blocks[copy.block].bytes;
      copy.seconds = static_cast<double>(copy.bytes) / machine.link_bytes_per_second;
      const int made_at = position_[graph_.tensors[swap.tensor].producer];
      // vDNN's begins beside the layer that reads it first.
      copy.leaves_after = std::max(0, plan_.waits_each_layer ? swap.leaves - 1 : made_at);
      copy.last_read = copy.leaves_after;
      for (const int reader : graph_.tensors[swap.tensor].consumers) {
        if (!graph_.nodes[reader].is_backward) {
          copy.last_read = std::max(copy.last_read, position_[reader]);
        }
      }
      copy.fetch_at = swap.fetch_at;
      copy.needed_at = swap.needed_at;
      made_.copy_of[copy.block] = static_cast<int>(made_.copies.size());
      made_.copies.push_back(copy);
    }
  }

  const StepGraph& graph_;
  const AllocationTrace& trace_;
  const SwapPlan plan_;
  std::vector<int> position_;  // by node; -1: it touches no feature map
  std::unordered_map<std::string, int> numbers_;
  ReplayProgram made_;
};

}  // namespace

ReplayProgram MakeReplayProgram(const StepGraph& graph, const std::vector<NodeWork>& work,
                                const AllocationTrace& trace, SwapPolicy policy,
                                const ReplayMachine& machine) {
  return Compiler(graph, trace, policy).Compile(work, machine);
}

}  // namespace trepak
