// How many samples of one order all ranks have taken: a number on a parameter server.

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ops/parameter_service_ops.h"
#include "ops/runtime/parameters/parameter_service.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakBeginOrder")
    .Attr("key: int")
    .Attr("size: int >= 1")
    .Attr("is_first: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Begins an order of samples that ranks take from; every rank must, before any takes.

key: of the number on the parameter servers.
size: number of ranks.
is_first: on one rank, which sets it to 0.
)doc");

REGISTER_OP("TrepakTakeSamples")
    .Output("first: int64")
    .Attr("key: int")
    .Attr("size: int >= 1")
    .Attr("count: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Takes the next samples of the order; returns how many had been taken before.");

// Thread safety: of each key, a take must not begin before the one before has ended.
class OrderOp : public tensorflow::AsyncOpKernel {
 public:
  explicit OrderOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("size", &size_));
  }

 protected:
  using Ask = Status (ParameterClient::*)(uint32_t key, Precedence precedence, Payload values);

  uint32_t key() const { return static_cast<uint32_t>(key_); }

  // Sets the number of samples that have been taken, or adds to it; ends the op with what it is
  // then, in one of the client's threads.
  void Count(tensorflow::OpKernelContext* context, Ask ask, int64_t samples,
             const std::function<void(int64_t)>& counted, DoneCallback done) {
    Status status;
    const std::shared_ptr<ParameterClient> client = FindClient(&status);
    if (client != nullptr) {
      // Servers divide what is added by the number of ranks.
      Payload number = Payload::Allocate(sizeof(double));
      *static_cast<double*>(number.mutable_data()) = static_cast<double>(samples * size_);
      status = (client.get()->*ask)(key(), Precedence(), std::move(number));
    }
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(status), done);
    client->Deliver(key(), [context, counted, done = std::move(done)](const Status& error,
                                                                      const Payload& number) {
      OP_REQUIRES_OK_ASYNC(context, ToFlowError(error), done);
      counted(std::llround(*static_cast<const double*>(number.data())));
      done();
    });
  }

 private:
  int64_t key_ = 0;
  int64_t size_ = 1;
};

class BeginOrderOp : public OrderOp {
 public:
  explicit BeginOrderOp(tensorflow::OpKernelConstruction* context) : OrderOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("is_first", &is_first_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const Status status =
        VariableTable::Global().Add({key(), "samples taken of an order", ElementType::kFloat64, 1});
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(status), done);
    if (is_first_) {
      Count(
          context, &ParameterClient::Assign, 0, [](int64_t) {}, std::move(done));
    } else {
      done();
    }
  }

 private:
  bool is_first_ = false;
};

class TakeSamplesOp : public OrderOp {
 public:
  explicit TakeSamplesOp(tensorflow::OpKernelConstruction* context) : OrderOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("count", &count_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    tensorflow::Tensor* first = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &first), done);
    // The server adds and answers at once: nobody else gets these samples.
    Count(
        context, &ParameterClient::Change, count_,
        [this, first](int64_t taken) { first->scalar<int64_t>()() = taken - count_; },
        std::move(done));
  }

 private:
  int64_t count_ = 1;
};

REGISTER_KERNEL_BUILDER(Name("TrepakBeginOrder").Device(tensorflow::DEVICE_CPU), BeginOrderOp);
REGISTER_KERNEL_BUILDER(Name("TrepakTakeSamples").Device(tensorflow::DEVICE_CPU), TakeSamplesOp);

}  // namespace
}  // namespace trepak
