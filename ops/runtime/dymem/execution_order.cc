#include "ops/runtime/dymem/execution_order.h"

#include <cstddef>

namespace trepak {
namespace {

class DepthFirst {
 public:
  explicit DepthFirst(const StepGraph& graph) : graph_(graph), visits_(graph.nodes.size(), 0) {
    order_.reserve(graph.nodes.size());
  }

  std::vector<int> Order() && {
    for (const bool has_samples : {false, true}) {
      for (size_t node = 0; node < graph_.nodes.size(); ++node) {
        const StepNode& begun = graph_.nodes[node];
        if (begun.predecessors == 0 && begun.has_samples == has_samples) {
          Follow(static_cast<int>(node));
        }
      }
      for (const int node : held_) {
        Follow(node);
      }
      held_.clear();
    }
    return std::move(order_);
  }

 private:
  // Recursion would be as deep as the network.
  void Follow(int first) {
    stack_.push_back(first);
    while (!stack_.empty()) {
      const int node = stack_.back();
      stack_.pop_back();
      order_.push_back(node);
      // The last that is pushed comes next: those that make feature maps go below the others, and
      // the later ones of a fork below the earlier ones.
      PushReady(node, /*makes=*/true);
      PushReady(node, /*makes=*/false);
    }
  }

  void PushReady(int node, bool makes) {
    const std::vector<int>& successors = graph_.nodes[node].successors;
    for (auto next = successors.rbegin(); next != successors.rend(); ++next) {
      if (graph_.Makes(*next) != makes || ++visits_[*next] < graph_.nodes[*next].predecessors) {
        continue;
      }
      // Samples have their turn when all weights are known.
      const bool is_early = graph_.nodes[*next].has_samples && !graph_.nodes[node].has_samples;
      (is_early ? held_ : stack_).push_back(*next);
    }
  }

  const StepGraph& graph_;
  std::vector<int> visits_;
  std::vector<int> stack_;
  std::vector<int> held_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> ExecutionOrder(const StepGraph& graph) { return DepthFirst(graph).Order(); }

}  // namespace trepak
