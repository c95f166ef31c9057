// What ops of systems share whose engine belongs to one optimizer, which knows it by its stream.

#ifndef TREPAK_OPS_STREAM_OPS_H_
#define TREPAK_OPS_STREAM_OPS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "ops/engine_ops.h"
#include "ops/runtime/coordination/streams.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {

// Registers an op that takes tensors which are packed into one buffer.
#define TREPAK_REGISTER_VALUES_OP(name, doc) \
  REGISTER_OP(name)                          \
      .Input("values: num_values * T")       \
      .Attr("num_values: int >= 1")          \
      .Attr("T: {float, double}")            \
      .Attr("stream: int")                   \
      .SetIsStateful()                       \
      .SetShapeFn(NoOutputs)                 \
      .Doc(doc)

// Registers an op that returns tensors of such a buffer.
#define TREPAK_REGISTER_FETCH_OP(name, doc) \
  REGISTER_OP(name)                         \
      .Output("values: num_values * T")     \
      .Attr("num_values: int >= 1")         \
      .Attr("T: {float, double}")           \
      .Attr("shapes: list(shape)")          \
      .Attr("stream: int")                  \
      .SetIsStateful()                      \
      .SetShapeFn(ShapesOfAttribute)        \
      .Doc(doc)

// The shape of one output, [kLength].
template <int kLength>
absl::Status VectorOf(tensorflow::shape_inference::InferenceContext* context) {
  context->set_output(0, context->Vector(kLength));
  return absl::OkStatus();
}

template <typename Value>
void OutputScalar(tensorflow::OpKernelContext* context, int output, Value value) {
  tensorflow::Tensor* scalar = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(output, {}, &scalar));
  scalar->scalar<Value>()() = std::move(value);
}

template <typename Value, typename Values>
void OutputVector(tensorflow::OpKernelContext* context, int output, const Values& values) {
  tensorflow::Tensor* vector = nullptr;
  OP_REQUIRES_OK(context,
                 context->allocate_output(output, {static_cast<int64_t>(values.size())}, &vector));
  std::copy(values.begin(), values.end(), vector->vec<Value>().data());
}

// What has been counted, as the op's only output.
inline void OutputCounters(tensorflow::OpKernelContext* context,
                           std::initializer_list<uint64_t> counted) {
  OutputVector<int64_t>(context, 0, counted);
}

// Returns what ends an asynchronous op; it keeps the owner of what the op waits for alive.
template <typename Owner>
std::function<void(const Status&)> End(tensorflow::OpKernelContext* context,
                                       tensorflow::AsyncOpKernel::DoneCallback done,
                                       std::shared_ptr<Owner> owner) {
  return [context, done = std::move(done), owner = std::move(owner)](const Status& status) {
    if (!status.ok()) {
      context->SetStatus(ToFlowError(status));
    }
    done();
  };
}

// An op, a kernel of type Kernel, of the engine with the op's stream.
template <typename Engine, typename Kernel = tensorflow::OpKernel>
class StreamOp : public Kernel {
 public:
  explicit StreamOp(tensorflow::OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("stream", &stream_));
  }

 protected:
  int stream() const { return stream_; }
  Engine& engine() const { return EngineOf<Engine>(static_cast<uint32_t>(stream_)); }

 private:
  int stream_ = 0;
};

// Ends an engine.
template <typename Engine>
class StreamStopOp : public StreamOp<Engine> {
 public:
  explicit StreamStopOp(tensorflow::OpKernelConstruction* context) : StreamOp<Engine>(context) {
    OP_REQUIRES_OK(context, context->GetAttr("patience_milliseconds", &patience_));
  }
  void Compute(tensorflow::OpKernelContext*) override {
    this->engine().Stop(std::chrono::milliseconds(patience_));
  }

 private:
  int64_t patience_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_STREAM_OPS_H_
