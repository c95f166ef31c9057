#include "ops/dymem_layers.h"

#include <unordered_map>
#include <unordered_set>

#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/grappler/op_types.h"
#include "tensorflow/core/util/util.h"

namespace trepak {

LayerKind LayerKindOf(const std::string& op) {
  static const auto* const kinds = new std::unordered_map<std::string, LayerKind>{
      {"Conv2D", LayerKind::kConvolution},
      {"Conv3D", LayerKind::kConvolution},
      {"DepthwiseConv2dNative", LayerKind::kConvolution},
      {"_FusedConv2D", LayerKind::kConvolution},
      {"_FusedDepthwiseConv2dNative", LayerKind::kConvolution},
      {"MaxPool", LayerKind::kPooling},
      {"MaxPool3D", LayerKind::kPooling},
      {"AvgPool", LayerKind::kPooling},
      {"AvgPool3D", LayerKind::kPooling},
      {"Relu", LayerKind::kActivation},
      {"Relu6", LayerKind::kActivation},
      {"LeakyRelu", LayerKind::kActivation},
      {"Elu", LayerKind::kActivation},
      {"Selu", LayerKind::kActivation},
      {"Sigmoid", LayerKind::kActivation},
      {"Tanh", LayerKind::kActivation},
      {"Softplus", LayerKind::kActivation},
      {"FusedBatchNorm", LayerKind::kNormalization},
      {"FusedBatchNormV2", LayerKind::kNormalization},
      {"FusedBatchNormV3", LayerKind::kNormalization},
      {"_FusedBatchNormEx", LayerKind::kNormalization},
      {"LRN", LayerKind::kNormalization},
      {"MatMul", LayerKind::kFullyConnected},
      {"_FusedMatMul", LayerKind::kFullyConnected},
      {"Softmax", LayerKind::kSoftmax},
      {"LogSoftmax", LayerKind::kSoftmax},
      {"SoftmaxCrossEntropyWithLogits", LayerKind::kSoftmax},
      {"SparseSoftmaxCrossEntropyWithLogits", LayerKind::kSoftmax},
      // Which elements a dropout keeps. What it does to them is arithmetic like any other.
      {"SelectV2", LayerKind::kDropout},
      {"GreaterEqual", LayerKind::kDropout},
      {"StatelessRandomUniformV2", LayerKind::kDropout},
      {"RandomUniform", LayerKind::kDropout},
      {"AddV2", LayerKind::kJoin},
      {"AddN", LayerKind::kJoin},
      {"ConcatV2", LayerKind::kJoin}};
  const auto found = kinds->find(op);
  return found == kinds->end() ? LayerKind::kOther : found->second;
}

bool ReadsShapeOnly(const std::string& op) {
  static const auto* const ops =
      new std::unordered_set<std::string>{"Shape", "ShapeN", "Size", "Rank"};
  return ops->count(op) > 0;
}

bool EndsFunction(const std::string& op) { return op == "_Retval" || op == "_DeviceRetval"; }

bool IsBlind(const std::string& op) {
  static const auto* const ops =
      new std::unordered_set<std::string>{"AvgPool",
                                          "AvgPool3D",
                                          "AvgPool3DGrad",
                                          "AvgPoolGrad",
                                          "BatchMatMul",
                                          "BatchMatMulV2",
                                          "BatchMatMulV3",
                                          "Conv2D",
                                          "Conv2DBackpropFilter",
                                          "Conv2DBackpropInput",
                                          "Conv3D",
                                          "Conv3DBackpropFilterV2",
                                          "Conv3DBackpropInputV2",
                                          "DepthwiseConv2dNative",
                                          "DepthwiseConv2dNativeBackpropFilter",
                                          "DepthwiseConv2dNativeBackpropInput",
                                          "Einsum",
                                          "FusedBatchNorm",
                                          "FusedBatchNormGrad",
                                          "FusedBatchNormGradV2",
                                          "FusedBatchNormGradV3",
                                          "FusedBatchNormV2",
                                          "FusedBatchNormV3",
                                          "LRN",
                                          "LRNGrad",
                                          "MatMul",
                                          "MaxPool",
                                          "MaxPool3D",
                                          "MaxPool3DGrad",
                                          "MaxPoolGrad",
                                          "Softmax",
                                          "_FusedBatchMatMulV2",
                                          "_FusedBatchNormEx",
                                          "_FusedConv2D",
                                          "_FusedConv3D",
                                          "_FusedDepthwiseConv2dNative",
                                          "_FusedMatMul"};
  return ops->count(op) > 0;
}

FlowDepth DepthBehind(const tensorflow::NodeDef& node, FlowDepth depth) {
  if (tensorflow::grappler::IsEnter(node)) {
    ++depth.frames;
  } else if (tensorflow::grappler::IsExit(node)) {
    --depth.frames;
  } else if (depth.frames == 0) {  // a loop has switches of its own
    if (tensorflow::grappler::IsSwitch(node)) {
      ++depth.branches;
    } else if (tensorflow::grappler::IsMerge(node) && depth.branches > 0) {
      --depth.branches;
    }
  }
  return depth;
}

bool ShareHiddenResult(const std::string& op, const std::string& reader, int input) {
  constexpr int kOriginalOutput = 1;
  return tensorflow::IsMKLEnabled() && input == kOriginalOutput &&
         ((op == "MaxPool" && reader == "MaxPoolGrad") ||
          (op == "MaxPool3D" && reader == "MaxPool3DGrad"));
}

bool BringsSamples(const tensorflow::NodeDef& node) {
  if (node.op() == "IteratorGetNext" || node.op() == "IteratorGetNextSync") {
    return true;
  }
  if (node.op() != "_Arg" && node.op() != "Placeholder") {
    return false;
  }
  const auto& attributes = node.attr();
  const auto type = attributes.find(node.op() == "_Arg" ? "T" : "dtype");
  return type != attributes.end() && type->second.type() != tensorflow::DT_RESOURCE;
}

bool IsInGradientScope(const std::string& node) {
  for (const char* const scope : {"gradient_tape/", "gradients/"}) {
    const size_t at = node.find(scope);
    if (at == 0 || (at != std::string::npos && node[at - 1] == '/')) {
      return true;
    }
  }
  return false;
}

}  // namespace trepak
