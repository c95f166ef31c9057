// Tensors that live in a payload's memory.

#ifndef TREPAK_OPS_PAYLOAD_TENSOR_H_
#define TREPAK_OPS_PAYLOAD_TENSOR_H_

#include <utility>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/tensor.h"

namespace trepak {

inline ElementType ElementTypeOf(tensorflow::DataType type) {
  return type == tensorflow::DT_DOUBLE ? ElementType::kFloat64 : ElementType::kFloat32;
}

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

// Returns a tensor that keeps the payload, which must be of its size and aligned as Allocate does.
inline tensorflow::Tensor TensorOf(tensorflow::DataType type, const tensorflow::TensorShape& shape,
                                   Payload payload) {
  if (shape.num_elements() == 0) {
    return tensorflow::Tensor(type, shape);
  }
  auto* buffer = new PayloadBuffer(std::move(payload));
  tensorflow::Tensor tensor(type, shape, buffer);  // takes a reference
  buffer->Unref();
  return tensor;
}

}  // namespace trepak

#endif  // TREPAK_OPS_PAYLOAD_TENSOR_H_
