// Reads a training step from TensorFlow's graph.

#ifndef TREPAK_OPS_DYMEM_GRAPH_H_
#define TREPAK_OPS_DYMEM_GRAPH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/runtime/dymem/step_graph.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/grappler/grappler_item.h"

namespace trepak {

// Nodes have the numbers that they have in the graph.
struct DymemGraph {
  struct Output {
    tensorflow::DataType type;
    tensorflow::TensorShapeProto shape;
  };

  StepGraph step;
  std::vector<Output> outputs;  // by tensor of the step
  // What of the graph is not in the step; empty if all is.
  std::string left_alone;
};

// The step's tensors are those that somebody reads for their values, not for their shapes alone.
// Where the batch is not known, sizes are those of a batch of 32.
absl::Status ReadDymemGraph(const tensorflow::grappler::GrapplerItem& item, DymemGraph* read);

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_GRAPH_H_
