#include "ops/runtime/dymem/step_graph.h"

#include <algorithm>

namespace trepak {
namespace {

bool HasFeatureMap(const StepGraph& graph, const std::vector<int>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](int tensor) { return graph.tensors[tensor].is_feature_map; });
}

}  // namespace

bool IsReclaimed(LayerKind kind) {
  return kind == LayerKind::kFullyConnected || kind == LayerKind::kSoftmax ||
         kind == LayerKind::kDropout;
}

bool StepGraph::Makes(int node) const { return HasFeatureMap(*this, nodes[node].outputs); }

bool StepGraph::Touches(int node) const {
  return Makes(node) || HasFeatureMap(*this, nodes[node].inputs);
}

std::string StepGraph::NameOf(int tensor) const {
  const StepTensor& of = tensors[tensor];
  return nodes[of.producer].name + "/trepak_" + std::to_string(of.port);
}

}  // namespace trepak
