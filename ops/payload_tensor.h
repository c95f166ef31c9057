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
  // `is_shared`: others use these bytes as well, so that TensorFlow must not write to them.
  PayloadBuffer(Payload payload, bool is_shared)
      : TensorBuffer(payload.mutable_data()), payload_(std::move(payload)), is_shared_(is_shared) {}

  size_t size() const override { return payload_.size(); }
  TensorBuffer* root_buffer() override { return this; }
  bool OwnsMemory() const override { return !is_shared_; }
  void FillAllocationDescription(tensorflow::AllocationDescription* about) const override {
    about->set_requested_bytes(static_cast<int64_t>(payload_.size()));
    about->set_allocator_name("trepak");
  }

 private:
  const Payload payload_;
  const bool is_shared_;
};

// Returns a tensor that keeps the payload, which must be of its size and aligned as Allocate does,
// and which nobody else uses, or all only read (`is_shared`).
inline tensorflow::Tensor TensorOf(tensorflow::DataType type, const tensorflow::TensorShape& shape,
                                   Payload payload, bool is_shared = false) {
  if (shape.num_elements() == 0) {
    return tensorflow::Tensor(type, shape);
  }
  auto* buffer = new PayloadBuffer(std::move(payload), is_shared);
  tensorflow::Tensor tensor(type, shape, buffer);  // takes a reference
  buffer->Unref();
  return tensor;
}

}  // namespace trepak

#endif  // TREPAK_OPS_PAYLOAD_TENSOR_H_
