// How ops output scalars, or nothing.

#ifndef TREPAK_OPS_OP_HELPERS_H_
#define TREPAK_OPS_OP_HELPERS_H_

#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {

inline absl::Status NoOutputs(tensorflow::shape_inference::InferenceContext*) {
  return absl::OkStatus();
}

template <typename Value>
void OutputScalar(tensorflow::OpKernelContext* context, int output, Value value) {
  tensorflow::Tensor* scalar = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(output, {}, &scalar));
  scalar->scalar<Value>()() = std::move(value);
}

}  // namespace trepak

#endif  // TREPAK_OPS_OP_HELPERS_H_
