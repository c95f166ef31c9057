// How many samples of one order all ranks have taken: a number on a parameter server.

#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "ops/calls.h"
#include "ops/runtime/parameters/parameter_service.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakTakeSamples")
    .Output("first: int64")
    .Attr("key: int")
    .Attr("size: int >= 1")
    .Attr("count: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Takes the next samples of the order; returns how many had been taken before.");

using Ask = Status (ParameterClient::*)(uint32_t key, Precedence precedence, Payload values);

// Sets the number of samples that have been taken, or adds to it; hands over what it is then, in
// one of the client's threads. Of each key, it must not be called again before that.
void Count(uint32_t key, int64_t size, Ask ask, int64_t samples,
           const std::function<void(const absl::Status& status, int64_t taken)>& counted) {
  Status status;
  const std::shared_ptr<ParameterClient> client = ParameterService::Global().client(&status);
  if (client != nullptr) {
    // Servers divide what is added by the number of ranks.
    Payload number = Payload::Allocate(sizeof(double));
    *static_cast<double*>(number.mutable_data()) = static_cast<double>(samples * size);
    status = (client.get()->*ask)(key, Precedence(), std::move(number));
  }
  if (!status.ok()) {
    counted(ToFlowError(status), 0);
    return;
  }
  client->Deliver(key, [counted](const Status& error, const Payload& number) {
    counted(ToFlowError(error),
            error.ok() ? std::llround(*static_cast<const double*>(number.data())) : 0);
  });
}

// Begins an order of samples that ranks take from; every rank must, before any takes. The first one
// sets the number to 0.
absl::Status BeginOrder(const Arguments& given, Json*) {
  const auto key = given.Get<uint32_t>("key");
  TF_RETURN_IF_ERROR(ToFlowError(
      VariableTable::Global().Add({key, "samples taken of an order", ElementType::kFloat64, 1})));
  const auto set = std::make_shared<std::promise<absl::Status>>();
  if (given.Get<bool>("is_first")) {
    Count(key, given.AtLeast(1, "size"), &ParameterClient::Assign, 0,
          [set](const absl::Status& status, int64_t) { set->set_value(status); });
  } else {
    set->set_value(absl::OkStatus());
  }
  return set->get_future().get();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"begin_order", BeginOrder}});

class TakeSamplesOp : public tensorflow::AsyncOpKernel {
 public:
  explicit TakeSamplesOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("size", &size_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &count_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    tensorflow::Tensor* first = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &first), done);
    // The server adds and answers at once: nobody else gets these samples.
    Count(
        static_cast<uint32_t>(key_), size_, &ParameterClient::Change, count_,
        [this, context, first, done = std::move(done)](const absl::Status& status, int64_t taken) {
          OP_REQUIRES_OK_ASYNC(context, status, done);
          first->scalar<int64_t>()() = taken - count_;
          done();
        });
  }

 private:
  int64_t key_ = 0;
  int64_t size_ = 1;
  int64_t count_ = 1;
};

REGISTER_KERNEL_BUILDER(Name("TrepakTakeSamples").Device(tensorflow::DEVICE_CPU), TakeSamplesOp);

}  // namespace
}  // namespace trepak
