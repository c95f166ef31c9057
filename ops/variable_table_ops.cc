// The table of variables: which there are, where they stand, what separates their priorities.

#include <string>
#include <vector>

#include "ops/parameter_service_ops.h"
#include "ops/payload_tensor.h"
#include "ops/runtime/parameters/variable_table.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakAddVariable")
    .Attr("key: int")
    .Attr("label: string")
    .Attr("T: {float, double}")
    .Attr("elements: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Makes a variable known, under the same key on all ranks.");

REGISTER_OP("TrepakPlaceVariable")
    .Attr("key: int")
    .Attr("layer: int >= 1")
    .Attr("fully_connected: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Says in which layer, by forward order from 1 on, a variable is.");

REGISTER_OP("TrepakSetThresholds")
    .Attr("thresholds: list(float)")
    .Attr("coarse: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Sets what separates the priorities: falling urgencies, or kinds of layers.");

class AddVariableOp : public tensorflow::OpKernel {
 public:
  explicit AddVariableOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    int64_t key = 0;
    int64_t elements = 0;
    tensorflow::DataType type = tensorflow::DT_FLOAT;
    OP_REQUIRES_OK(context, context->GetAttr("key", &key));
    OP_REQUIRES_OK(context, context->GetAttr("label", &variable_.name));
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    OP_REQUIRES_OK(context, context->GetAttr("elements", &elements));
    variable_.key = static_cast<uint32_t>(key);
    variable_.type = ElementTypeOf(type);
    variable_.elements = static_cast<size_t>(elements);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, ToFlowError(VariableTable::Global().Add(variable_)));
  }

 private:
  Variable variable_;
};

class PlaceVariableOp : public tensorflow::OpKernel {
 public:
  explicit PlaceVariableOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("layer", &place_.layer));
    OP_REQUIRES_OK(context, context->GetAttr("fully_connected", &place_.fully_connected));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const auto key = static_cast<uint32_t>(key_);
    OP_REQUIRES_OK(context, ToFlowError(VariableTable::Global().Place(key, place_)));
  }

 private:
  int64_t key_ = 0;
  VariablePlace place_;
};

class SetThresholdsOp : public tensorflow::OpKernel {
 public:
  explicit SetThresholdsOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    std::vector<float> thresholds;
    OP_REQUIRES_OK(context, context->GetAttr("thresholds", &thresholds));
    OP_REQUIRES_OK(context, context->GetAttr("coarse", &coarse_));
    thresholds_.assign(thresholds.begin(), thresholds.end());
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    VariableTable& table = VariableTable::Global();
    if (coarse_) {
      table.SetCoarse();
    } else {
      OP_REQUIRES_OK(context, ToFlowError(table.SetThresholds(thresholds_)));
    }
  }

 private:
  std::vector<double> thresholds_;
  bool coarse_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TrepakAddVariable").Device(tensorflow::DEVICE_CPU), AddVariableOp);
REGISTER_KERNEL_BUILDER(Name("TrepakPlaceVariable").Device(tensorflow::DEVICE_CPU),
                        PlaceVariableOp);
REGISTER_KERNEL_BUILDER(Name("TrepakSetThresholds").Device(tensorflow::DEVICE_CPU),
                        SetThresholdsOp);

}  // namespace
}  // namespace trepak
