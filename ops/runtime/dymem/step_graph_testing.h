// For tests: training steps of a few layers.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_STEP_GRAPH_TESTING_H_
#define TREPAK_OPS_RUNTIME_DYMEM_STEP_GRAPH_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/step_graph.h"

namespace trepak {

struct TestNode {
  std::string name;
  std::vector<std::string> inputs;  // names of nodes, whose results it reads
  LayerKind kind = LayerKind::kOther;
  bool makes = true;  // a feature map
  bool is_backward = false;
  bool has_samples = true;
};

// Makes a step. Each node has one result, so that a node and its tensor bear the same number and
// name. Thread safety: none.
class TestStep {
 public:
  int Add(const TestNode& added) {
    const auto number = static_cast<int>(graph_.nodes.size());
    StepNode node;
    node.name = added.name;
    node.kind = added.kind;
    node.is_backward = added.is_backward;
    node.has_samples = added.has_samples;
    for (const std::string& input : added.inputs) {
      const int tensor = (*this)[input];
      node.inputs.push_back(tensor);
      ++node.predecessors;
      graph_.nodes[tensor].successors.push_back(number);
      graph_.tensors[tensor].consumers.push_back(number);
    }
    node.outputs = {number};
    graph_.nodes.push_back(std::move(node));
    graph_.tensors.push_back({number, 0, added.makes ? 1 << 20 : 64, {}, added.makes});
    EXPECT_TRUE(numbers_.try_emplace(added.name, number).second) << added.name;
    return number;
  }

  // Of the forward pass.
  void Layer(const std::string& name, LayerKind kind, const std::vector<std::string>& inputs) {
    Add({name, inputs, kind});
    layers_.push_back(name);
  }
  void Convolution(const std::string& name, const std::string& input) {
    Layer(name, LayerKind::kConvolution, {input});
  }

  // The mirror image of the layers so far. In the names of its nodes, "d" is before the layer's.
  // - a convolution: "dx/filter" reads the gradient and the layer's input, and makes no feature
  //   map; then "dx" makes its input's gradient.
  // - a join: "dx/y" is the gradient of its input y.
  // - others: "dx" reads the gradient and the layer's input, and makes its input's gradient.
  // - a fork: "x/sum" adds what its readers have made.
  // What reads nothing needs no gradient.
  void AddBackward() {
    std::map<std::string, std::vector<std::string>> gradients;  // parts of them, by layer
    AddOf("loss", {layers_.back()}, LayerKind::kOther);
    gradients[layers_.back()] = {"loss"};
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      const StepNode forward = graph_.nodes[(*this)[*layer]];
      if (forward.inputs.empty()) {
        continue;
      }
      std::string gradient = gradients.at(*layer).front();
      if (gradients[*layer].size() > 1) {
        gradient = *layer + "/sum";
        AddOf(gradient, gradients[*layer], LayerKind::kJoin);
      }
      for (auto read = forward.inputs.rbegin(); read != forward.inputs.rend(); ++read) {
        const std::string input = graph_.nodes[*read].name;
        std::string made = "d" + *layer;
        if (forward.kind == LayerKind::kJoin) {
          made += "/" + input;
          AddOf(made, {gradient}, LayerKind::kOther);
        } else if (forward.kind == LayerKind::kConvolution) {
          AddOf(made + "/filter", {gradient, input}, forward.kind, false);
          if (graph_.nodes[*read].inputs.empty()) {
            continue;
          }
          AddOf(made, {gradient}, forward.kind);
        } else {
          AddOf(made, {gradient, input}, forward.kind);
        }
        gradients[input].push_back(made);
      }
    }
  }

  int operator[](const std::string& name) const { return numbers_.at(name); }
  const StepGraph& graph() const { return graph_; }
  std::vector<std::string> Names(const std::vector<int>& nodes) const {
    std::vector<std::string> names;
    for (const int node : nodes) {
      names.push_back(graph_.nodes[node].name);
    }
    return names;
  }

 private:
  void AddOf(const std::string& name, const std::vector<std::string>& inputs, LayerKind kind,
             bool makes = true) {
    Add({name, inputs, kind, makes, /*is_backward=*/true});
  }

  StepGraph graph_;
  std::map<std::string, int> numbers_;
  std::vector<std::string> layers_;
};

// Figure 4.2, an Inception-A block: l1, l2, l3 and l4 read l0; l5, l2, l6 and l8 are joined in l9.
inline void AddInception(TestStep* step, const std::string& input, const std::string& prefix = "") {
  const auto name = [&](int layer) { return prefix + "l" + std::to_string(layer); };
  step->Convolution(name(0), input);
  for (const auto& [layer, read] :
       std::vector<std::pair<int, int>>{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 1}, {6, 3}, {7, 4}}) {
    step->Convolution(name(layer), name(read));
  }
  step->Convolution(name(8), name(7));
  step->Layer(name(9), LayerKind::kJoin, {name(5), name(2), name(6), name(8)});
}

// Two convolutions, each with an activation, and one beside them.
inline void AddResidual(TestStep* step, const std::string& input, const std::string& prefix = "") {
  step->Convolution(prefix + "c1", input);
  step->Layer(prefix + "a1", LayerKind::kActivation, {prefix + "c1"});
  step->Convolution(prefix + "c2", prefix + "a1");
  step->Convolution(prefix + "beside", input);
  step->Layer(prefix + "add", LayerKind::kJoin, {prefix + "c2", prefix + "beside"});
  step->Layer(prefix + "a2", LayerKind::kActivation, {prefix + "add"});
}

inline TestStep InceptionStep(int blocks) {
  TestStep step;
  step.Layer("images", LayerKind::kOther, {});
  step.Convolution("stem", "images");
  std::string last = "stem";
  for (int block = 0; block < blocks; ++block) {
    const std::string prefix = blocks == 1 ? "" : std::to_string(block) + "/";
    AddInception(&step, last, prefix);
    last = prefix + "l9";
  }
  step.AddBackward();
  return step;
}

inline TestStep ResidualStep(int blocks) {
  TestStep step;
  step.Layer("images", LayerKind::kOther, {});
  std::string last = "images";
  for (int block = 0; block < blocks; ++block) {
    const std::string prefix = std::to_string(block) + "/";
    AddResidual(&step, last, prefix);
    last = prefix + "a2";
  }
  step.AddBackward();
  return step;
}

// "0" reads "images", "1" reads "0", and so on.
inline TestStep LinearStep(const std::vector<LayerKind>& kinds) {
  TestStep step;
  step.Layer("images", LayerKind::kOther, {});
  std::string last = "images";
  for (size_t layer = 0; layer < kinds.size(); ++layer) {
    step.Layer(std::to_string(layer), kinds[layer], {last});
    last = std::to_string(layer);
  }
  step.AddBackward();
  return step;
}

// Forks and joins as they come, up to 40 layers.
inline TestStep RandomStep(unsigned seed) {
  std::mt19937 random(seed);
  TestStep step;
  std::vector<std::string> names = {"images"};
  std::vector<std::string> unread;
  step.Layer("images", LayerKind::kOther, {});
  const size_t layers = 1 + random() % 40;
  while (names.size() <= layers) {
    std::vector<std::string> inputs;
    for (size_t input = 0; input < 1 + random() % 3; ++input) {
      const std::string& read =
          names[names.size() - 1 - random() % std::min<size_t>(names.size(), 6)];
      if (std::find(inputs.begin(), inputs.end(), read) == inputs.end()) {
        inputs.push_back(read);
        unread.erase(std::remove(unread.begin(), unread.end(), read), unread.end());
      }
    }
    names.push_back("l" + std::to_string(names.size()));
    unread.push_back(names.back());
    const LayerKind kind = inputs.size() > 1   ? LayerKind::kJoin
                           : random() % 3 != 0 ? LayerKind::kConvolution
                                               : static_cast<LayerKind>(random() % 9);
    step.Layer(names.back(), kind, inputs);
  }
  step.Layer("last", LayerKind::kJoin, unread);
  step.AddBackward();
  return step;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_STEP_GRAPH_TESTING_H_
