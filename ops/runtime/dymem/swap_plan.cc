#include "ops/runtime/dymem/swap_plan.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>

namespace trepak {
namespace {

// Algorithm 3, line 11: so many inputs of convolutions are in memory at once, that of the running
// layer included.
constexpr int kResidentConvolutions = 2;

bool Leaves(const StepGraph& graph, SwapPolicy policy, const std::vector<int>& readers) {
  return std::any_of(readers.begin(), readers.end(), [&](int node) {
    const LayerKind kind = graph.nodes[node].kind;
    return policy == SwapPolicy::kSuperNeurons ? kind == LayerKind::kConvolution
                                               : !IsReclaimed(kind);
  });
}

std::optional<Swap> SwapOf(const StepGraph& graph, SwapPolicy policy, int number,
                           const std::vector<int>& position) {
  const StepTensor& tensor = graph.tensors[number];
  if (!tensor.is_feature_map || tensor.stays || graph.nodes[tensor.producer].is_backward) {
    return std::nullopt;
  }
  Swap swap;
  std::vector<int> forward;
  for (const int node : tensor.consumers) {
    if (position[node] < 0) {
      return std::nullopt;  // on a circle
    }
    (graph.nodes[node].is_backward ? swap.readers : forward).push_back(node);
  }
  if (forward.empty() || swap.readers.empty() || !Leaves(graph, policy, forward)) {
    return std::nullopt;
  }
  const auto by_position = [&](int a, int b) { return position[a] < position[b]; };
  swap.tensor = number;
  swap.leaves = position[*std::min_element(forward.begin(), forward.end(), by_position)];
  swap.needed_at =
      position[*std::min_element(swap.readers.begin(), swap.readers.end(), by_position)];
  swap.of_convolution = std::any_of(forward.begin(), forward.end(), [&](int node) {
    return graph.nodes[node].kind == LayerKind::kConvolution;
  });
  return swap;
}

// vDNN's: each comes back beside the layer before the one that needs it.
void FetchOneLayerAhead(SwapPlan* plan) {
  for (Swap& swap : plan->swaps) {
    swap.fetch_at = std::max(plan->first_backward, swap.needed_at - 1);
  }
}

// Algorithm 3. What the running layer reads counts while its last reader has not ended.
void ChooseFetches(const std::vector<int>& position, SwapPlan* plan) {
  std::vector<int> last_reads;  // of the convolutions' inputs so far, the latest first
  for (Swap& swap : plan->swaps) {
    // It may begin when at most one convolution's input is left in memory before it, or two for
    // what is no convolution's: the search goes on behind the second one, up to the third. A fork's
    // input may be left long after others that came later.
    const size_t left = swap.of_convolution ? kResidentConvolutions - 1 : kResidentConvolutions;
    swap.fetch_at = last_reads.size() <= left ? plan->first_backward : last_reads[left] + 1;
    swap.fetch_at = std::min(swap.fetch_at, swap.needed_at);
    if (swap.of_convolution) {
      int last = 0;
      for (const int node : swap.readers) {
        last = std::max(last, position[node]);
      }
      last_reads.insert(
          std::upper_bound(last_reads.begin(), last_reads.end(), last, std::greater<>()), last);
    }
  }
  // The queue keeps its order: nobody overtakes what is needed before.
  int begun = plan->first_backward;
  for (Swap& swap : plan->swaps) {
    begun = swap.fetch_at = std::min(std::max(begun, swap.fetch_at), swap.needed_at);
  }
}

}  // namespace

SwapPlan PlanSwaps(const StepGraph& graph, const std::vector<int>& order, SwapPolicy policy) {
  SwapPlan plan;
  std::vector<int> position(graph.nodes.size(), -1);
  for (const bool is_backward : {false, true}) {
    for (const int node : order) {
      if (graph.Touches(node) && graph.nodes[node].is_backward == is_backward) {
        position[node] = static_cast<int>(plan.chain.size());
        plan.chain.push_back(node);
      }
    }
    plan.first_backward = is_backward ? plan.first_backward : static_cast<int>(plan.chain.size());
  }
  plan.waits_each_layer = policy == SwapPolicy::kVdnn;
  if (policy == SwapPolicy::kNone) {
    return plan;
  }
  for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    if (auto swap = SwapOf(graph, policy, static_cast<int>(tensor), position)) {
      plan.swaps.push_back(*std::move(swap));
    }
  }
  std::stable_sort(plan.swaps.begin(), plan.swaps.end(),
                   [](const Swap& a, const Swap& b) { return a.needed_at < b.needed_at; });
  if (plan.waits_each_layer) {
    FetchOneLayerAhead(&plan);
  } else {
    ChooseFetches(position, &plan);
  }
  return plan;
}

}  // namespace trepak
