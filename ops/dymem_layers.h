// What TensorFlow's ops are to Dymem.

#ifndef TREPAK_OPS_DYMEM_LAYERS_H_
#define TREPAK_OPS_DYMEM_LAYERS_H_

#include <string>

#include "ops/runtime/dymem/step_graph.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace trepak {

LayerKind LayerKindOf(const std::string& op);
// Reads no values of its input, so that it runs as soon as there is one.
bool ReadsShapeOnly(const std::string& op);
// Returns its input. Where a function is cut in pieces, nothing can wait for such a node.
bool EndsFunction(const std::string& op);
// Its kernel for the processor, of oneDNN, uses its output's memory without a look whether there is
// any (TensorFlow 2.21: a convolution without memory ends the process).
bool IsBlind(const std::string& op);
// Of a node in a graph whose loops and branches are lowered: how many it is in.
struct FlowDepth {
  int frames = 0;
  int branches = 0;
};
// Of the nodes behind one.
FlowDepth DepthBehind(const tensorflow::NodeDef& node, FlowDepth depth);
// Whether oneDNN's kernels for a node and for one that reads it share a result that the graph does
// not show: TensorFlow takes these kernels, the fastest, only where nothing lies between the two.
// `input`: of the reader.
bool ShareHiddenResult(const std::string& op, const std::string& reader, int input);
bool BringsSamples(const tensorflow::NodeDef& node);
bool IsInGradientScope(const std::string& node);

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_LAYERS_H_
