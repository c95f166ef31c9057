#include "ops/runtime/dymem/layer_turns.h"

#include <cstddef>

namespace trepak {
namespace {

class Paths {
 public:
  Paths(const StepGraph& graph, const std::vector<int>& order)
      : graph_(graph), places_(graph.nodes.size(), -1), seen_by_(graph.nodes.size(), -1) {
    for (size_t place = 0; place < order.size(); ++place) {
      places_[order[place]] = static_cast<int>(place);
    }
  }

  // All nodes of a path lie between its ends in the order, so that few are looked at. What is in a
  // branch may not run, and nobody waits for it then.
  bool Leads(int from, int to) {
    std::vector<int> left = {from};
    while (!left.empty()) {
      const int node = left.back();
      left.pop_back();
      for (const int next : graph_.nodes[node].successors) {
        if (next == to) {
          return true;
        }
        if (places_[next] >= 0 && places_[next] < places_[to] && seen_by_[next] != from &&
            !graph_.nodes[next].is_left_alone) {
          seen_by_[next] = from;
          left.push_back(next);
        }
      }
    }
    return false;
  }

 private:
  const StepGraph& graph_;
  std::vector<int> places_;   // in the order
  std::vector<int> seen_by_;  // the search from that node
};

}  // namespace

int LayerBefore(const StepGraph& graph, const SwapPlan& plan, int position) {
  do {
    --position;
  } while (position >= 0 && graph.nodes[plan.chain[position]].is_merged);
  return position;
}

std::vector<LayerTurn> LayerTurns(const StepGraph& graph, const std::vector<int>& order,
                                  const SwapPlan& plan) {
  std::vector<LayerTurn> turns;
  Paths paths(graph, order);
  for (int position = 1; position < static_cast<int>(plan.chain.size()); ++position) {
    const int after = LayerBefore(graph, plan, position);
    if (after >= 0 && !graph.nodes[plan.chain[position]].is_merged &&
        !paths.Leads(plan.chain[after], plan.chain[position])) {
      turns.push_back({position, after});
    }
  }
  return turns;
}

}  // namespace trepak
