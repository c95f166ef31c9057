// Geryon's map_table: where parameters stand, and what separates their priorities.

#include <string>
#include <vector>

#include "ops/parameter_service_ops.h"
#include "ops/runtime/parameters/parameter_service.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakRecordParameter")
    .Attr("label: string")
    .Attr("layer: int >= 1")
    .Attr("fully_connected: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Says in which layer, by forward order from 1 on, a parameter is.");

REGISTER_OP("TrepakSetThresholds")
    .Attr("thresholds: list(float)")
    .Attr("coarse: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Sets what separates the priorities: falling urgencies, or kinds of layers.");

class RecordParameterOp : public tensorflow::OpKernel {
 public:
  explicit RecordParameterOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
    OP_REQUIRES_OK(context, context->GetAttr("layer", &place_.layer));
    OP_REQUIRES_OK(context, context->GetAttr("fully_connected", &place_.fully_connected));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context,
                   ToFlowError(ParameterService::Global().map_table().Record(label_, place_)));
  }

 private:
  std::string label_;
  ParameterPlace place_;
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
    MapTable& table = ParameterService::Global().map_table();
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

REGISTER_KERNEL_BUILDER(Name("TrepakRecordParameter").Device(tensorflow::DEVICE_CPU),
                        RecordParameterOp);
REGISTER_KERNEL_BUILDER(Name("TrepakSetThresholds").Device(tensorflow::DEVICE_CPU),
                        SetThresholdsOp);

}  // namespace
}  // namespace trepak
