// Gradients that travel while training goes on: through parameter servers, or in a lane.

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/lane_table.h"
#include "ops/op_helpers.h"
#include "ops/payload_tensor.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakPushGradient")
    .Input("variable: resource")
    .Input("gradient: T")
    .Attr("key: int")
    .Attr("factor: float")
    .Attr("average: bool")
    .Attr("pull: bool")
    .Attr("T: {float, double}")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Pushes a gradient to where it is summed; does not wait.

variable: whose gradient it is. The op does not touch it: it orders the op among others that do.
key: what add_variable made known.
factor: what the sum is multiplied with.
average: divide the sum by the number of ranks, too.
pull: ask for the sum at once; otherwise TrepakCommitStep must.
)doc");

REGISTER_OP("TrepakDeliverGradient")
    .Input("variable: resource")
    .Output("gradient: T")
    .Attr("key: int")
    .Attr("T: {float, double}")
    .Attr("shape: shape")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ExplicitShape)
    .Doc("Waits for the sum of the gradients that were pushed last, times the factor.");

REGISTER_OP("TrepakCommitStep")
    .Input("variables: num_variables * resource")
    .Attr("num_variables: int >= 1")
    .Attr("keys: list(int)")
    .Attr("pull: bool")
    .Attr("seed: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Says that a training step has pushed the gradients of all these variables.

pull: ask for their sums now, in an order that is drawn anew each time, with `seed`.
)doc");

REGISTER_OP("TrepakPendingGradients")
    .Input("variables: num_variables * resource")
    .Output("pending: bool")
    .Attr("num_variables: int >= 1")
    .Attr("keys: list(int)")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->num_inputs()));
      return absl::OkStatus();
    })
    .Doc("Says which variables' gradients were pushed and not delivered; fails for half a step.");

class PushGradientOp : public tensorflow::OpKernel {
 public:
  explicit PushGradientOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("factor", &factor_));
    OP_REQUIRES_OK(context, context->GetAttr("average", &average_));
    OP_REQUIRES_OK(context, context->GetAttr("pull", &pull_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    Status status;
    const auto exchange = FindExchange(static_cast<uint32_t>(key_), &status);
    if (exchange != nullptr) {
      // A reference to the gradient, which keeps its memory and keeps others from writing to it.
      auto gradient = std::make_shared<tensorflow::Tensor>(context->input(1));
      void* const data = gradient->data();
      const size_t size = gradient->TotalBytes();
      const Precedence precedence =
          ParameterService::Global().PrecedenceOf(static_cast<uint32_t>(key_));
      status = exchange->PushGradient(static_cast<uint32_t>(key_), precedence,
                                      Payload(data, size, std::move(gradient)), factor_, average_,
                                      pull_);
    }
    OP_REQUIRES_OK(context, ToFlowError(status));
  }

 private:
  int key_ = 0;
  float factor_ = 1.0F;
  bool average_ = false;
  bool pull_ = true;
};

class DeliverGradientOp : public tensorflow::AsyncOpKernel {
 public:
  explicit DeliverGradientOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("T", &type_));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    Status status;
    const auto key = static_cast<uint32_t>(key_);
    const auto exchange = FindExchange(key, &status);
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(status), done);
    // If another op of the step fails, nobody wants the gradient any more.
    tensorflow::CancellationManager* const cancellation = context->cancellation_manager();
    const tensorflow::CancellationToken token = cancellation->get_cancellation_token();
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    const auto delivered = std::make_shared<std::atomic<bool>>(false);
    if (!cancellation->RegisterCallback(token, [exchange, key, cancelled] {
          cancelled->store(true);
          exchange->CancelDeliver(key);
        })) {
      context->SetStatus(absl::CancelledError("the step was cancelled"));
      done();
      return;
    }
    exchange->Deliver(key, [this, context, cancellation, token, delivered, done](
                               const Status& error, Payload result) {
      delivered->store(true);
      cancellation->TryDeregisterCallback(token);
      if (error.ok()) {
        context->set_output(0, TensorOf(type_, shape_, std::move(result)));
      } else {
        context->SetStatus(error.code() == StatusCode::kCancelled
                               ? absl::CancelledError(std::string(error.message()))
                               : ToFlowError(error));
      }
      done();
    });
    if (cancelled->load() && !delivered->load()) {
      exchange->CancelDeliver(key);  // it was cancelled before it began to wait
    }
  }

 private:
  int key_ = 0;
  tensorflow::DataType type_ = tensorflow::DT_FLOAT;
  tensorflow::TensorShape shape_;
};

std::vector<uint32_t> KeysOf(tensorflow::OpKernelConstruction* context) {
  std::vector<int> keys;
  const absl::Status status = context->GetAttr("keys", &keys);
  if (status.ok() && static_cast<int>(keys.size()) != context->num_inputs()) {
    context->CtxFailure(absl::InvalidArgumentError("there must be one key per variable"));
  }
  return std::vector<uint32_t>(keys.begin(), keys.end());
}

class CommitStepOp : public tensorflow::OpKernel {
 public:
  explicit CommitStepOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context), keys_(KeysOf(context)) {
    int64_t seed = 0;
    OP_REQUIRES_OK(context, context->GetAttr("pull", &pull_));
    OP_REQUIRES_OK(context, context->GetAttr("seed", &seed));
    random_.seed(static_cast<uint32_t>(seed));
    order_.resize(keys_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    Status status;
    const auto exchange = FindExchange(keys_.front(), &status);
    if (exchange != nullptr) {
      status = exchange->CommitStep(keys_);
    }
    if (status.ok() && pull_) {
      status = PullAll();
    }
    OP_REQUIRES_OK(context, ToFlowError(status));
  }

 private:
  Status PullAll() {
    Status status;
    const std::shared_ptr<ParameterClient> client = ParameterService::Global().client(&status);
    TREPAK_RETURN_IF_ERROR(status);
    std::lock_guard<std::mutex> lock(mutex_);
    std::shuffle(order_.begin(), order_.end(), random_);
    for (const size_t i : order_) {
      const Precedence precedence = ParameterService::Global().PrecedenceOf(keys_[i]);
      TREPAK_RETURN_IF_ERROR(client->Pull(keys_[i], precedence));
    }
    return OkStatus();
  }

  const std::vector<uint32_t> keys_;
  bool pull_ = false;
  std::mutex mutex_;
  std::mt19937 random_;        // Guarded by mutex_.
  std::vector<size_t> order_;  // Guarded by mutex_.
};

class PendingGradientsOp : public tensorflow::OpKernel {
 public:
  explicit PendingGradientsOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context), keys_(KeysOf(context)) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    Status status;
    std::vector<bool> pending(keys_.size(), false);
    const auto exchange = FindExchange(keys_.front(), &status);
    if (exchange != nullptr) {
      status = exchange->Pending(keys_, &pending);
    } else {
      status = OkStatus();  // where nothing runs nothing can be pending
    }
    OP_REQUIRES_OK(context, ToFlowError(status));
    tensorflow::Tensor* output = nullptr;
    const auto size = static_cast<int64_t>(pending.size());
    OP_REQUIRES_OK(context, context->allocate_output(0, {size}, &output));
    std::copy(pending.begin(), pending.end(), output->vec<bool>().data());
  }

 private:
  const std::vector<uint32_t> keys_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakCommitStep").Device(tensorflow::DEVICE_CPU), CommitStepOp);
REGISTER_KERNEL_BUILDER(Name("TrepakPendingGradients").Device(tensorflow::DEVICE_CPU),
                        PendingGradientsOp);
REGISTER_KERNEL_BUILDER(Name("TrepakPushGradient").Device(tensorflow::DEVICE_CPU), PushGradientOp);
REGISTER_KERNEL_BUILDER(Name("TrepakDeliverGradient").Device(tensorflow::DEVICE_CPU),
                        DeliverGradientOp);

}  // namespace
}  // namespace trepak
