// The native engine's own ops: start, connect, count, stop.

#include "ops/engine_ops.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "ops/job_attributes.h"
#include "ops/runtime/parameters/engine.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakEngineStart")
    .Input("secret: string")
    .Output("addresses: string")
    .Attr("rank: int")
    .Attr("size: int")
    .Attr("host: string")
    .Attr("deadline_milliseconds: int")
    .Attr("encrypt: bool = false")
    .Attr("servers: list(int)")
    .Attr("split: bool")
    .Attr("slice_elements: int")
    .Attr("fixed_order: bool")
    .Attr("dscp: list(int)")
    .Attr("by_layer: bool")
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
    .Attr("patience_milliseconds: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends the engine's threads and flows; what waits fails. Others get time to end as well.");

REGISTER_OP("TrepakEngineCounters")
    .Output("bytes_by_priority: int64")
    .Output("lookup_nanoseconds: int64")
    .Output("served_bytes: int64")
    .Output("serving_nanoseconds: int64")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(
          0, context->Vector(tensorflow::shape_inference::InferenceContext::kUnknownDim));
      for (const int index : {1, 2, 3}) {
        context->set_output(index, context->Scalar());
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Says what the engine has done since it started; look-ups are those of the process.

bytes_by_priority: bytes that left this rank.
lookup_nanoseconds: what looking priorities up has taken.
served_bytes: bytes that came to this rank's server.
serving_nanoseconds: the CPU time that they took there.
)doc");

class EngineStartOp : public tensorflow::OpKernel {
 public:
  explicit EngineStartOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    std::vector<int> servers;
    OP_REQUIRES_OK(context, JobFromAttributes(context, &options_.job));
    OP_REQUIRES_OK(context, context->GetAttr("servers", &servers));
    OP_REQUIRES_OK(context, context->GetAttr("split", &options_.partition.split));
    OP_REQUIRES_OK(context, context->GetAttr("slice_elements", &options_.partition.slice_elements));
    OP_REQUIRES_OK(context, context->GetAttr("fixed_order", &options_.fixed_order));
    OP_REQUIRES_OK(context, context->GetAttr("by_layer", &options_.by_layer));
    options_.partition.servers.assign(servers.begin(), servers.end());
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    Engine::Options options = options_;
    OP_REQUIRES_OK(context, SecretFrom(context->input(0), &options.job));
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
  explicit EngineStopOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    int64_t patience = 0;
    OP_REQUIRES_OK(context, context->GetAttr("patience_milliseconds", &patience));
    patience_ = std::chrono::milliseconds(patience);
  }
  void Compute(tensorflow::OpKernelContext*) override { Engine::Global().Stop(patience_); }

 private:
  std::chrono::milliseconds patience_{0};
};

class EngineCountersOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::vector<uint64_t> counted = Engine::Global().BytesByPriority();
    tensorflow::Tensor* bytes = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, {static_cast<int64_t>(counted.size())}, &bytes));
    std::copy(counted.begin(), counted.end(), bytes->vec<int64_t>().data());
    const ParameterServer::Served served = Engine::Global().Served();
    const uint64_t scalars[] = {Engine::Global().map_table().lookup_nanoseconds(), served.bytes,
                                served.nanoseconds};
    for (int i = 0; i < 3; ++i) {
      tensorflow::Tensor* output = nullptr;
      OP_REQUIRES_OK(context, context->allocate_output(1 + i, {}, &output));
      output->scalar<int64_t>()() = static_cast<int64_t>(scalars[i]);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEngineStart").Device(tensorflow::DEVICE_CPU), EngineStartOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEngineConnect").Device(tensorflow::DEVICE_CPU),
                        EngineConnectOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEngineStop").Device(tensorflow::DEVICE_CPU), EngineStopOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEngineCounters").Device(tensorflow::DEVICE_CPU),
                        EngineCountersOp);

}  // namespace
}  // namespace trepak
