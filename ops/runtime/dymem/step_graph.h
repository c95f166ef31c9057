// A training step as Dymem sees it: nodes, the tensors between them, and what kinds of layers the
// nodes are. The graph pass fills it from TensorFlow's graph, a replay from a recorded one.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_STEP_GRAPH_H_
#define TREPAK_OPS_RUNTIME_DYMEM_STEP_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trepak {

enum class LayerKind {
  kConvolution,
  kPooling,
  kActivation,
  kNormalization,
  kFullyConnected,
  kSoftmax,
  kDropout,
  kJoin,   // adds or concatenates
  kOther,  // elementwise arithmetic, and all that is not known
};

// Fully connected, softmax and dropout layers have small tensors that stay long; Dymem never moves
// them (chapter 2.1.3.2, Algorithm 4).
bool IsReclaimed(LayerKind kind);

struct StepTensor {
  int producer = -1;
  int port = 0;                // of the producer
  int64_t bytes = 0;           // estimated with an assumed batch where the graph does not say
  std::vector<int> consumers;  // in the order of nodes, each once
  // Grows with the batch and is not small: what fills memory. All others are ignored.
  bool is_feature_map = false;
  // Never leaves: the node that makes it hands one that reads it more than the graph shows, if
  // nothing lies between the two.
  bool stays = false;
};

struct StepNode {
  std::string name;
  LayerKind kind = LayerKind::kOther;
  bool is_backward = false;
  // Has an input that grows with the batch, directly or by others. Weights and constants have not.
  bool has_samples = false;
  // In a loop or a branch: it may run often, or not at all.
  bool is_left_alone = false;
  // TensorFlow makes one node of it and another one that reads the same, after the graph pass. What
  // has its turn between the two would wait for that node, and be waited for by it: so nothing
  // waits for this one, and it waits for its inputs alone.
  bool is_merged = false;
  std::vector<int> inputs;      // tensors
  std::vector<int> outputs;     // tensors
  std::vector<int> successors;  // nodes that wait for this one, for whatever reason; with repeats
  int predecessors = 0;         // as many as there are entries for this node in others' successors
};

// Plain data without locks.
struct StepGraph {
  std::vector<StepNode> nodes;
  std::vector<StepTensor> tensors;

  // Whether a feature map begins or ends at it, so that its turn decides how much memory is taken.
  bool Touches(int node) const;
  bool Makes(int node) const;  // a feature map

  // By which a swapped tensor is known to the pass, the engine and a trace.
  std::string NameOf(int tensor) const;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_STEP_GRAPH_H_
