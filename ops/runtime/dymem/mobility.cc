#include "ops/runtime/dymem/mobility.h"

#include <algorithm>
#include <cstddef>

namespace trepak {
namespace {

class Grouping {
 public:
  Grouping(const StepGraph& graph, const SwapPlan& plan)
      : graph_(graph), next_layer_(graph.nodes.size(), -1), is_swapped_(graph.tensors.size()) {
    for (const Swap& swap : plan.swaps) {
      is_swapped_[swap.tensor] = true;
    }
    int next = -1;
    for (auto node = plan.chain.rbegin(); node != plan.chain.rend(); ++node) {
      next_layer_[*node] = next;
      next = IsLayer(*node) ? *node : next;
    }
  }

  TensorGroup GroupOf(int number) const {
    const StepTensor& tensor = graph_.tensors[number];
    TensorGroup group;
    if (!tensor.is_feature_map || IsReclaimed(graph_.nodes[tensor.producer].kind)) {
      return group;
    }
    std::vector<int> layers;
    bool stays = false;
    for (const int node : tensor.consumers) {
      if (graph_.nodes[node].is_backward != graph_.nodes[tensor.producer].is_backward) {
        stays = !is_swapped_[number];
      } else if (IsLayer(node)) {
        layers.push_back(node);
      }
    }
    if (stays) {
      return group;
    }
    group.references = std::max<int>(1, static_cast<int>(layers.size()));
    const bool is_next = layers.empty() || layers.front() == next_layer_[tensor.producer];
    group.mobility = group.references == 1 && is_next ? Mobility::kMovable : Mobility::kTemporary;
    return group;
  }

 private:
  bool IsLayer(int node) const {
    const std::vector<int>& outputs = graph_.nodes[node].outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](int made) {
      const StepTensor& tensor = graph_.tensors[made];
      return tensor.is_feature_map && std::any_of(tensor.consumers.begin(), tensor.consumers.end(),
                                                  [&](int reader) { return graph_.Makes(reader); });
    });
  }

  const StepGraph& graph_;
  std::vector<int> next_layer_;  // by node of the chain: the layer that runs after it
  std::vector<bool> is_swapped_;
};

}  // namespace

std::vector<TensorGroup> GroupByMobility(const StepGraph& graph, const SwapPlan& plan) {
  const Grouping grouping(graph, plan);
  std::vector<TensorGroup> groups;
  groups.reserve(graph.tensors.size());
  for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    groups.push_back(grouping.GroupOf(static_cast<int>(tensor)));
  }
  return groups;
}

}  // namespace trepak
