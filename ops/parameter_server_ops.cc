// The native engine's ops: start and stop, and the gradients that go through its parameter servers.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_ext/runtime/engine.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

absl::Status NoOutputs(tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); }

REGISTER_OP("TrepakEngineStart")
    .Input("secret: string")
    .Output("addresses: string")
    .Attr("rank: int")
    .Attr("size: int")
    .Attr("host: string")
    .Attr("deadline_milliseconds: int")
    .Attr("servers: list(int)")
    .Attr("split: bool")
    .Attr("slice_elements: int")
    .Attr("fixed_order: bool")
    .Attr("dscp: list(int)")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(2));
      return absl::OkStatus();
    })
    .Doc("Starts the engine. addresses: [2], of this rank's server, or empty, and of its client.");

REGISTER_OP("TrepakEngineConnect")
    .Input("servers: string")
    .Input("clients: string")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Opens this rank's flows; the addresses are by rank.");

REGISTER_OP("TrepakEngineStop")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends the engine's threads and flows; what waits fails.");

REGISTER_OP("TrepakRegisterVariable")
    .Attr("key: int")
    .Attr("label: string")
    .Attr("T: {float, double}")
    .Attr("elements: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Makes a variable known, under the same key on all ranks.");

REGISTER_OP("TrepakPushGradient")
    .Input("variable: resource")
    .Input("gradient: T")
    .Attr("key: int")
    .Attr("label: string")
    .Attr("factor: float")
    .Attr("T: {float, double}")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Pushes a gradient to the parameter servers and asks for the sum; does not wait.

variable: whose gradient it is. The op does not touch it: it orders the op among others that do.
key: what TrepakRegisterVariable made known.
factor: what the sum is multiplied with.
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

absl::Status ToFlowError(const Status& status) {
  // Of the one code that the Python side turns into HorovodInternalError.
  return status.ok() ? absl::OkStatus()
                     : absl::UnknownError("trepak's flows: " + std::string(status.message()));
}

std::vector<std::string> Strings(const tensorflow::Tensor& tensor) {
  const auto values = tensor.flat<tensorflow::tstring>();
  std::vector<std::string> strings;
  for (int64_t i = 0; i < values.size(); ++i) {
    strings.emplace_back(values(i));
  }
  return strings;
}

class EngineStartOp : public tensorflow::OpKernel {
 public:
  explicit EngineStartOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    int rank = 0;
    int size = 0;
    int64_t deadline = 0;
    std::vector<int> servers;
    OP_REQUIRES_OK(context, context->GetAttr("rank", &rank));
    OP_REQUIRES_OK(context, context->GetAttr("size", &size));
    OP_REQUIRES_OK(context, context->GetAttr("host", &options_.host));
    OP_REQUIRES_OK(context, context->GetAttr("deadline_milliseconds", &deadline));
    OP_REQUIRES_OK(context, context->GetAttr("servers", &servers));
    OP_REQUIRES_OK(context, context->GetAttr("split", &options_.partition.split));
    OP_REQUIRES_OK(context, context->GetAttr("slice_elements", &options_.partition.slice_elements));
    OP_REQUIRES_OK(context, context->GetAttr("fixed_order", &options_.fixed_order));
    OP_REQUIRES_OK(context, context->GetAttr("dscp", &options_.dscp));
    options_.rank = static_cast<uint32_t>(rank);
    options_.size = static_cast<uint32_t>(size);
    options_.deadline = std::chrono::milliseconds(deadline);
    options_.partition.servers.assign(servers.begin(), servers.end());
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::vector<std::string> secret = Strings(context->input(0));
    OP_REQUIRES(context, secret.size() == 1 && secret[0].size() == options_.secret.size(),
                absl::InvalidArgumentError("the secret must be one string of 32 bytes"));
    Engine::Options options = options_;
    std::copy(secret[0].begin(), secret[0].end(), options.secret.begin());
    OP_REQUIRES_OK(context, ToFlowError(Engine::Global().Start(options)));
    tensorflow::Tensor* addresses = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {2}, &addresses));
    addresses->vec<tensorflow::tstring>()(0) = Engine::Global().server_address();
    addresses->vec<tensorflow::tstring>()(1) = Engine::Global().client_address();
  }

 private:
  Engine::Options options_;
};

class EngineConnectOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, ToFlowError(Engine::Global().Connect(Strings(context->input(0)),
                                                                 Strings(context->input(1)))));
  }
};

class EngineStopOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext*) override { Engine::Global().Stop(); }
};

std::shared_ptr<ParameterClient> FindClient(Status* status) {
  std::shared_ptr<ParameterClient> client = Engine::Global().client();
  *status =
      client == nullptr ? FailedPreconditionError("the native engine does not run") : OkStatus();
  return client;
}

ElementType ElementTypeOf(tensorflow::DataType type) {
  return type == tensorflow::DT_DOUBLE ? ElementType::kFloat64 : ElementType::kFloat32;
}

class RegisterVariableOp : public tensorflow::OpKernel {
 public:
  explicit RegisterVariableOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
    OP_REQUIRES_OK(context, context->GetAttr("T", &type_));
    OP_REQUIRES_OK(context, context->GetAttr("elements", &elements_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    Status status;
    const std::shared_ptr<ParameterClient> client = FindClient(&status);
    if (client != nullptr) {
      status =
          client->Register(static_cast<uint32_t>(key_), label_, ElementTypeOf(type_), elements_);
    }
    OP_REQUIRES_OK(context, ToFlowError(status));
  }

 private:
  int key_ = 0;
  std::string label_;
  tensorflow::DataType type_ = tensorflow::DT_FLOAT;
  int64_t elements_ = 0;
};

class PushGradientOp : public tensorflow::OpKernel {
 public:
  explicit PushGradientOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
    OP_REQUIRES_OK(context, context->GetAttr("factor", &factor_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    Status status;
    const std::shared_ptr<ParameterClient> client = FindClient(&status);
    if (client != nullptr) {
      // A reference to the gradient, which keeps its memory and keeps others from writing to it.
      auto gradient = std::make_shared<tensorflow::Tensor>(context->input(1));
      void* const data = gradient->data();
      const size_t size = gradient->TotalBytes();
      const uint8_t priority = Engine::Global().map_table().PriorityOf(label_);
      status = client->Push(static_cast<uint32_t>(key_), priority,
                            Payload(data, size, std::move(gradient)), factor_);
    }
    OP_REQUIRES_OK(context, ToFlowError(status));
  }

 private:
  int key_ = 0;
  std::string label_;
  float factor_ = 1.0F;
};

// Lets a tensor live in a payload's memory.
class PayloadBuffer : public tensorflow::TensorBuffer {
 public:
  explicit PayloadBuffer(Payload payload)
      : TensorBuffer(payload.mutable_data()), payload_(std::move(payload)) {}

  size_t size() const override { return payload_.size(); }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* about) const override {
    about->set_requested_bytes(static_cast<int64_t>(payload_.size()));
    about->set_allocator_name("trepak");
  }

 private:
  const Payload payload_;
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
    const std::shared_ptr<ParameterClient> client = FindClient(&status);
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(status), done);
    client->Deliver(static_cast<uint32_t>(key_),
                    [this, context, done = std::move(done)](const Status& error, Payload result) {
                      if (error.ok()) {
                        SetOutput(context, std::move(result));
                      } else {
                        context->SetStatus(ToFlowError(error));
                      }
                      done();
                    });
  }

 private:
  void SetOutput(tensorflow::OpKernelContext* context, Payload result) const {
    if (shape_.num_elements() == 0) {
      context->set_output(0, tensorflow::Tensor(type_, shape_));
      return;
    }
    auto* buffer = new PayloadBuffer(std::move(result));
    context->set_output(0, tensorflow::Tensor(type_, shape_, buffer));  // takes a reference
    buffer->Unref();
  }

  int key_ = 0;
  tensorflow::DataType type_ = tensorflow::DT_FLOAT;
  tensorflow::TensorShape shape_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakEngineStart").Device(tensorflow::DEVICE_CPU), EngineStartOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEngineConnect").Device(tensorflow::DEVICE_CPU),
                        EngineConnectOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEngineStop").Device(tensorflow::DEVICE_CPU), EngineStopOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRegisterVariable").Device(tensorflow::DEVICE_CPU),
                        RegisterVariableOp);
REGISTER_KERNEL_BUILDER(Name("TrepakPushGradient").Device(tensorflow::DEVICE_CPU), PushGradientOp);
REGISTER_KERNEL_BUILDER(Name("TrepakDeliverGradient").Device(tensorflow::DEVICE_CPU),
                        DeliverGradientOp);

}  // namespace
}  // namespace trepak
