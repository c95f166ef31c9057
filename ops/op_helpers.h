// What ops share that hand tensors to native code and take them back.

#ifndef TREPAK_OPS_OP_HELPERS_H_
#define TREPAK_OPS_OP_HELPERS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "ops/parameter_service_ops.h"
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
      .Attr("session: int")                  \
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
      .Attr("session: int")                 \
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

}  // namespace trepak

#endif  // TREPAK_OPS_OP_HELPERS_H_
