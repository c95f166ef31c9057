// RNA's ops where there are groups: their parameters, and those of the whole job.

#include <memory>
#include <utility>

#include "horovod_ext/runtime/sample_budget.h"
#include "ops/engine_ops.h"
#include "ops/packed.h"
#include "ops/rna_ops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

TREPAK_REGISTER_VALUES_OP("TrepakRnaExchange",
                          "Exchanges this rank's parameters with other groups; does not wait.");

TREPAK_REGISTER_VALUES_OP(
    "TrepakRnaBringLastChange",
    "Adds what this rank's group has changed to the job's parameters, if it leads the group.");

TREPAK_REGISTER_VALUES_OP("TrepakRnaAssign", "Sets the job's parameters.");

REGISTER_OP("TrepakRnaFetch")
    .Output("values: num_values * T")
    .Attr("num_values: int >= 1")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc("Returns the job's parameters, for training to go on from.");

REGISTER_OP("TrepakRnaRemaining")
    .Output("rounds: int32")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Says how many rounds are to be read after a drain, finished or not.");

class RnaExchangeOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = engine().worker();
    OP_REQUIRES_OK(context, ToFlowError(worker == nullptr ? NotRunning() : OkStatus()));
    const Payload values = PackInputs(context, 0, context->num_inputs());
    OP_REQUIRES_OK(context, ToFlowError(worker->Exchange(values)));
  }
};

class RnaBringLastChangeOp : public RnaWaitOp {
 public:
  using RnaWaitOp::RnaWaitOp;

 protected:
  void Wait(tensorflow::OpKernelContext* context, RnaWorker* worker,
            RnaWorker::Callback callback) override {
    worker->BringLastChange(PackInputs(context, 0, context->num_inputs()), std::move(callback));
  }
};

class RnaAssignOp : public RnaWaitOp {
 public:
  using RnaWaitOp::RnaWaitOp;

 protected:
  void Wait(tensorflow::OpKernelContext* context, RnaWorker* worker,
            RnaWorker::Callback callback) override {
    worker->Assign(PackInputs(context, 0, context->num_inputs()), std::move(callback));
  }
};

class RnaFetchOp : public RnaWaitOp {
 public:
  explicit RnaFetchOp(tensorflow::OpKernelConstruction* context) : RnaWaitOp(context) {
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
  }

 protected:
  void Wait(tensorflow::OpKernelContext* context, RnaWorker* worker,
            RnaWorker::Callback callback) override {
    worker->Fetch([this, context, worker, callback = std::move(callback)](const Status& status,
                                                                          const Payload& values) {
      if (status.ok()) {
        packed_.Output(values, context);
        SampleBudget::Global().Count(worker->TakeOthersSamples());
      }
      callback(status);
    });
  }

 private:
  Packed packed_;
};

class RnaRemainingOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = engine().worker();
    const uint64_t remaining = worker == nullptr ? 0 : worker->remaining();
    OutputScalar(context, 0, static_cast<int32_t>(remaining));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakRnaExchange").Device(tensorflow::DEVICE_CPU), RnaExchangeOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaBringLastChange").Device(tensorflow::DEVICE_CPU),
                        RnaBringLastChangeOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaAssign").Device(tensorflow::DEVICE_CPU), RnaAssignOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaFetch").Device(tensorflow::DEVICE_CPU), RnaFetchOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaRemaining").Device(tensorflow::DEVICE_CPU), RnaRemainingOp);

}  // namespace
}  // namespace trepak
