// RNA's ops where there are groups: their parameters, and those of the whole job.

#include <memory>
#include <utility>

#include "ops/packed.h"
#include "ops/runtime/rna/rna_worker.h"
#include "ops/worker_ops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using RnaOp = SessionOp<RnaWorker>;

TREPAK_REGISTER_VALUES_OP("TrepakRnaExchange",
                          "Exchanges this rank's parameters with other groups; does not wait.");

TREPAK_REGISTER_VALUES_OP(
    "TrepakRnaBringLastChange",
    "Adds what this rank's group has changed to the job's parameters, if it leads the group.");

TREPAK_REGISTER_VALUES_OP("TrepakRnaAssign", "Sets the job's parameters.");

TREPAK_REGISTER_FETCH_OP("TrepakRnaFetch",
                         "Returns the job's parameters, for training to go on from.");

REGISTER_OP("TrepakRnaRemaining")
    .Output("rounds: int32")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Says how many rounds are to be read after a drain, finished or not.");

class RnaExchangeOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = FindOrFail(context);
    if (worker == nullptr) {
      return;
    }
    const Payload values = PackInputs(context, 0, context->num_inputs());
    OP_REQUIRES_OK(context, ToFlowError(worker->Exchange(values)));
  }
};

class RnaRemainingOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = Find();
    const uint64_t remaining = worker == nullptr ? 0 : worker->remaining();
    OutputScalar(context, 0, static_cast<int32_t>(remaining));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakRnaExchange").Device(tensorflow::DEVICE_CPU), RnaExchangeOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaBringLastChange").Device(tensorflow::DEVICE_CPU),
                        WorkerTakeOp<RnaWorker, &RnaWorker::BringLastChange>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaAssign").Device(tensorflow::DEVICE_CPU),
                        WorkerTakeOp<RnaWorker, &RnaWorker::Assign>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaFetch").Device(tensorflow::DEVICE_CPU),
                        WorkerFetchOp<RnaWorker>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaRemaining").Device(tensorflow::DEVICE_CPU), RnaRemainingOp);

}  // namespace
}  // namespace trepak
