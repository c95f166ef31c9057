#include "ops/dymem_graph.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ops/dymem_layers.h"
#include "ops/dymem_loops.h"
#include "ops/runtime/dymem/execution_order.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"
#include "tensorflow/core/grappler/op_types.h"
#include "tensorflow/core/grappler/utils.h"

namespace trepak {
namespace {

namespace tf = tensorflow;

constexpr int64_t kAssumedBatch = 32;
// Smaller tensors than this part of the largest one decide nothing.
constexpr int64_t kSmallPart = 256;
constexpr int64_t kSmallBytes = 4096;

class Reader {
 public:
  Reader(const tf::grappler::GrapplerItem& item, DymemGraph* read)
      : graph_(item.graph), properties_(item), read_(*read) {}

  absl::Status Read() {
    TF_RETURN_IF_ERROR(properties_.InferStatically(/*assume_valid_feeds=*/false));
    const int count = graph_.node_size();
    for (int node = 0; node < count; ++node) {
      numbers_[graph_.node(node).name()] = node;
    }
    read_.step.nodes.resize(count);
    for (int node = 0; node < count; ++node) {
      AddNode(node);
    }
    OrderLoops();
    MarkSamples();
    LeaveControlFlowAlone();
    MarkFeatureMaps();
    MarkBackward();
    return absl::OkStatus();
  }

 private:
  void AddNode(int number) {
    const tf::NodeDef& node = graph_.node(number);
    StepNode& added = read_.step.nodes[number];
    added.name = node.name();
    added.kind = LayerKindOf(node.op());
    added.is_merged = node.op() == "BiasAddGrad";
    std::unordered_set<int> seen;
    for (int slot = 0; slot < node.input_size(); ++slot) {
      int port = 0;
      const auto from = numbers_.find(tf::grappler::ParseNodeName(node.input(slot), &port));
      if (from == numbers_.end() || tf::grappler::IsNextIteration(graph_.node(from->second))) {
        continue;
      }
      read_.step.nodes[from->second].successors.push_back(number);
      ++added.predecessors;
      if (port >= 0 && !ReadsShapeOnly(node.op()) && !EndsFunction(node.op())) {
        const int tensor = TensorOf(from->second, port);
        read_.step.tensors[tensor].stays |=
            IsOnProcessor(node) &&
            ShareHiddenResult(graph_.node(from->second).op(), node.op(), slot);
        if (seen.insert(tensor).second) {
          added.inputs.push_back(tensor);
          read_.step.tensors[tensor].consumers.push_back(number);
        }
      }
    }
  }

  void OrderLoops() {
    for (const auto& [entry, exit] : LoopOrder(graph_)) {
      read_.step.nodes[entry].successors.push_back(exit);
      ++read_.step.nodes[exit].predecessors;
    }
  }

  static bool IsOnProcessor(const tf::NodeDef& node) {
    return node.device().empty() || node.device().find("CPU") != std::string::npos;
  }

  int TensorOf(int node, int port) {
    const auto [found, is_new] =
        tensors_.try_emplace({node, port}, static_cast<int>(read_.step.tensors.size()));
    if (!is_new) {
      return found->second;
    }
    StepTensor tensor;
    tensor.producer = node;
    tensor.port = port;
    DymemGraph::Output output{tf::DT_INVALID, {}};
    const auto& known = properties_.GetOutputProperties(graph_.node(node).name());
    if (port < static_cast<int>(known.size())) {
      output.type = known[port].dtype();
      output.shape = known[port].shape();
      tensor.bytes = BytesOf(output);
    }
    read_.step.tensors.push_back(std::move(tensor));
    read_.outputs.push_back(std::move(output));
    read_.step.nodes[node].outputs.push_back(found->second);
    return found->second;
  }

  static int64_t BytesOf(const DymemGraph::Output& output) {
    if (!tf::DataTypeCanUseMemcpy(output.type)) {
      return 0;
    }
    int64_t numbers = output.shape.unknown_rank() ? kAssumedBatch : 1;
    for (int axis = 0; axis < output.shape.dim_size(); ++axis) {
      const int64_t size = output.shape.dim(axis).size();
      numbers *= size >= 0 ? size : axis == 0 ? kAssumedBatch : 1;
    }
    return numbers * tf::DataTypeSize(output.type);
  }

  // Samples come in by arguments that are no variables, and by iterators.
  void MarkSamples() {
    std::vector<int> marked;
    for (int node = 0; node < graph_.node_size(); ++node) {
      if (BringsSamples(graph_.node(node))) {
        read_.step.nodes[node].has_samples = true;
        marked.push_back(node);
        NoteBatch(node);
      }
    }
    Spread(std::move(marked), &StepNode::has_samples);
  }

  void NoteBatch(int node) {
    for (const auto& known : properties_.GetOutputProperties(graph_.node(node).name())) {
      if (known.shape().dim_size() > 1) {
        batch_ = std::max(batch_, known.shape().dim(0).size());
      }
    }
  }

  void Spread(std::vector<int> marked, bool StepNode::*mark) {
    while (!marked.empty()) {
      const int node = marked.back();
      marked.pop_back();
      for (const int next : read_.step.nodes[node].successors) {
        if (!(read_.step.nodes[next].*mark)) {
          read_.step.nodes[next].*mark = true;
          marked.push_back(next);
        }
      }
    }
  }

  // What is in a loop has a frame of its own, and what is in a branch may not run at all: an edge
  // from or to such a node would be wrong, so that no tensor of it is known.
  void LeaveControlFlowAlone() {
    std::vector<FlowDepth> depths(graph_.node_size());
    int left = 0;
    for (const int number : ExecutionOrder(read_.step)) {
      StepNode& node = read_.step.nodes[number];
      const FlowDepth depth = depths[number];
      const FlowDepth behind = DepthBehind(graph_.node(number), depth);
      for (const int next : node.successors) {
        depths[next].frames = std::max(depths[next].frames, behind.frames);
        depths[next].branches = std::max(depths[next].branches, behind.branches);
      }
      // The node that joins branches runs whatever became of them. One that enters a loop stands
      // outside of it, but who waits for it must not.
      if (depth.frames > 0 || behind.frames > 0 || behind.branches > 0) {
        ++left;
        Forget(number);
      }
    }
    if (left > 0) {
      read_.left_alone = std::to_string(left) + " nodes in loops and branches";
    }
  }

  void Forget(int number) {
    StepNode& node = read_.step.nodes[number];
    node.is_left_alone = true;
    node.inputs.clear();
    node.outputs.clear();
    for (auto& tensor : read_.step.tensors) {
      tensor.consumers.erase(std::remove(tensor.consumers.begin(), tensor.consumers.end(), number),
                             tensor.consumers.end());
    }
  }

  bool GrowsWithBatch(int tensor) const {
    const tf::TensorShapeProto& shape = read_.outputs[tensor].shape;
    if (!read_.step.nodes[read_.step.tensors[tensor].producer].has_samples) {
      return false;
    }
    if (shape.unknown_rank()) {
      return true;
    }
    const int64_t first = shape.dim_size() > 0 ? shape.dim(0).size() : 0;
    return first < 0 || (batch_ > 0 && first > 0 && first % batch_ == 0);
  }

  void MarkFeatureMaps() {
    int64_t largest = 0;
    std::vector<StepTensor>& tensors = read_.step.tensors;
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      if (GrowsWithBatch(static_cast<int>(tensor))) {
        largest = std::max(largest, tensors[tensor].bytes);
      }
    }
    const int64_t least = std::max(kSmallBytes, largest / kSmallPart);
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      tensors[tensor].is_feature_map =
          tensors[tensor].bytes >= least && GrowsWithBatch(static_cast<int>(tensor));
    }
  }

  // Gradients are made in a scope of that name. A node of the same inputs as a forward one may have
  // its place and bear its name, so that shapes and constants say nothing.
  void MarkBackward() {
    std::vector<int> marked;
    for (int node = 0; node < graph_.node_size(); ++node) {
      StepNode& looked_at = read_.step.nodes[node];
      if (IsInGradientScope(looked_at.name) && looked_at.has_samples && MakesNumbers(node) &&
          std::any_of(looked_at.inputs.begin(), looked_at.inputs.end(), [&](int input) {
            return tf::DataTypeIsFloating(read_.outputs[input].type) &&
                   read_.step.nodes[read_.step.tensors[input].producer].has_samples;
          })) {
        looked_at.is_backward = true;
        marked.push_back(node);
      }
    }
    Spread(std::move(marked), &StepNode::is_backward);
  }

  bool MakesNumbers(int node) const {
    const auto& known = properties_.GetOutputProperties(graph_.node(node).name());
    return !known.empty() && tf::DataTypeIsFloating(known[0].dtype());
  }

  const tf::GraphDef& graph_;
  tf::grappler::GraphProperties properties_;
  DymemGraph& read_;
  std::unordered_map<std::string, int> numbers_;
  std::map<std::pair<int, int>, int> tensors_;
  int64_t batch_ = 0;  // of static shapes
};

}  // namespace

absl::Status ReadDymemGraph(const tf::grappler::GrapplerItem& item, DymemGraph* read) {
  return Reader(item, read).Read();
}

}  // namespace trepak
