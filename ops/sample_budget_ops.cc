// Epochs of so many samples of all ranks together.

#include "ops/op_helpers.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakEndOfEpoch")
    .Output("end: int64")
    .Attr("dataset: int >= 1")
    .Attr("samples: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Returns where an epoch of so many samples ends that begins now.");

REGISTER_OP("TrepakEpochGoesOn")
    .Input("end: int64")
    .Output("goes_on: bool")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Says whether the ranks have not yet taken so many samples together.");

REGISTER_OP("TrepakCountDealt")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Counts what this rank was dealt: for a job of one rank, which has no rounds.");

REGISTER_OP("TrepakDeal")
    .Input("samples: int64")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Says that this rank was given so many samples.");

class EndOfEpochOp : public tensorflow::OpKernel {
 public:
  explicit EndOfEpochOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("dataset", &dataset_));
    OP_REQUIRES_OK(context, context->GetAttr("samples", &samples_));
  }
  void Compute(tensorflow::OpKernelContext* context) override {
    const uint64_t end = SampleBudget::Global().EndOfEpoch(static_cast<uint64_t>(dataset_),
                                                           static_cast<uint64_t>(samples_));
    OutputScalar(context, 0, static_cast<int64_t>(end));
  }

 private:
  int64_t dataset_ = 1;
  int64_t samples_ = 1;
};

class EpochGoesOnOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    const int64_t end = context->input(0).scalar<int64_t>()();
    OutputScalar(context, 0, !SampleBudget::Global().HasReached(static_cast<uint64_t>(end)));
  }
};

class CountDealtOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext*) override {
    SampleBudget::Global().Count(SampleBudget::Global().TakeDealt());
  }
};

class DealOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    SampleBudget::Global().Deal(static_cast<uint64_t>(context->input(0).scalar<int64_t>()()));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEndOfEpoch").Device(tensorflow::DEVICE_CPU), EndOfEpochOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEpochGoesOn").Device(tensorflow::DEVICE_CPU), EpochGoesOnOp);
REGISTER_KERNEL_BUILDER(Name("TrepakCountDealt").Device(tensorflow::DEVICE_CPU), CountDealtOp);
REGISTER_KERNEL_BUILDER(Name("TrepakDeal").Device(tensorflow::DEVICE_CPU), DealOp);

}  // namespace
}  // namespace trepak
