// RNA's ops: gradients of a step go out, finished rounds come in, and neither is waited for.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/packed.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/runtime/parameters/summation.h"
#include "ops/runtime/rna/rna_worker.h"
#include "ops/worker_ops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using RnaOp = SessionOp<RnaWorker>;

REGISTER_OP("TrepakRnaWrite")
    .Input("gradients: num_gradients * T")
    .Input("rate: float")
    .Attr("num_gradients: int >= 1")
    .Attr("T: {float, double}")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Hands over the gradients of what this rank was dealt, and their rate; does not wait.");

REGISTER_OP("TrepakRnaFinished")
    .Output("rounds: int32")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Says how many rounds have finished and were not read.");

REGISTER_OP("TrepakRnaRemaining")
    .Output("rounds: int32")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Says how many rounds are to be read after a drain, finished or not.");

REGISTER_OP("TrepakRnaRead")
    .Output("gradients: num_gradients * T")
    .Output("share: double")
    .Output("rate: float")
    .Output("is_exchange: bool")
    .Output("exchanges: bool")
    .Attr("num_gradients: int >= 1")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc(R"doc(
Returns the oldest round that has finished and was not read, and counts its samples.

gradients: the mean over the ranks that brought one; after an exchange, the parameters to adopt.
share: of the ranks of the group, that these are.
rate: the mean of their learning rates.
is_exchange: this is what came of an exchange with other groups.
exchanges: this rank is to exchange parameters when it has applied this round.
)doc");

class RnaWriteOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = FindOrFail(context);
    if (worker == nullptr) {
      return;
    }
    const Endpoint::Clock::time_point begin = Endpoint::Clock::now();
    const int count = context->num_inputs() - 1;
    const Packed packed = Packed::FromInputs(context, 0, count);
    Payload values = Payload::Allocate(packed.bytes());
    bool finite = true;
    for (int i = 0; i < count; ++i) {
      const tensorflow::Tensor& input = context->input(i);
      char* const place = packed.Place(static_cast<size_t>(i), &values);
      finite &= CopyFinite(packed.type(), input.TotalBytes(), input.data(), place);
    }
    Gradient gradient;
    gradient.values = finite ? std::move(values) : Payload();
    gradient.samples = SampleBudget::Global().TakeDealt();
    gradient.rate = context->input(count).scalar<float>()();
    OP_REQUIRES_OK(context, ToFlowError(worker->Write(std::move(gradient))));
    worker->CountCopying(Endpoint::Clock::now() - begin);
  }
};

// Outputs a number of rounds; of a session that is not open, none.
template <auto kCount>
class RnaCountOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = Find();
    const uint64_t count = worker == nullptr ? 0 : (worker.get()->*kCount)();
    OutputScalar(context, 0, static_cast<int32_t>(count));
  }
};

class RnaReadOp : public RnaOp {
 public:
  explicit RnaReadOp(tensorflow::OpKernelConstruction* context) : RnaOp(context) {
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = FindOrFail(context);
    if (worker == nullptr) {
      return;
    }
    RnaWorker::Round round;
    OP_REQUIRES_OK(context, ToFlowError(worker->Read(&round)));
    const Endpoint::Clock::time_point begin = Endpoint::Clock::now();
    if (round.contributors > 1) {
      // W in the thesis.
      Scale(packed_.type(), round.sum.size(), 1.0 / round.contributors, round.sum.data(),
            round.sum.mutable_data());
    }
    packed_.Output(round.sum, context);
    worker->CountCopying(Endpoint::Clock::now() - begin);
    const int beyond = static_cast<int>(packed_.count());
    OutputScalar(context, beyond, round.contributors / worker->members());
    OutputScalar(context, beyond + 1, static_cast<float>(round.rate));
    OutputScalar(context, beyond + 2, round.is_exchange);
    OutputScalar(context, beyond + 3, round.exchanges);
    SampleBudget::Global().Count(round.samples);
  }

 private:
  Packed packed_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakRnaWrite").Device(tensorflow::DEVICE_CPU), RnaWriteOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaFinished").Device(tensorflow::DEVICE_CPU),
                        RnaCountOp<&RnaWorker::finished>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaRemaining").Device(tensorflow::DEVICE_CPU),
                        RnaCountOp<&RnaWorker::remaining>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaRead").Device(tensorflow::DEVICE_CPU), RnaReadOp);

}  // namespace
}  // namespace trepak
