// Tensors of one type in the one buffer that all of them share.

#ifndef TREPAK_OPS_PACKED_H_
#define TREPAK_OPS_PACKED_H_

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/payload_tensor.h"
#include "ops/runtime/net/payload.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {

// Where they lie: each where a tensor may begin, with zeros between.
class Packed {
 public:
  Packed() = default;
  Packed(tensorflow::DataType type, const std::vector<tensorflow::TensorShape>& shapes)
      : type_(type), shapes_(shapes) {
    constexpr size_t kAlignment = static_cast<size_t>(Payload::kAlignment);
    for (const tensorflow::TensorShape& shape : shapes) {
      const size_t end = begins_.back() + Bytes(shape);
      begins_.push_back((end + kAlignment - 1) / kAlignment * kAlignment);
    }
  }

  // As the op's attributes T and shapes say.
  static absl::Status FromAttributes(tensorflow::OpKernelConstruction* context, Packed* packed) {
    tensorflow::DataType type;
    std::vector<tensorflow::TensorShape> shapes;
    TF_RETURN_IF_ERROR(context->GetAttr("T", &type));
    TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
    *packed = Packed(type, shapes);
    return absl::OkStatus();
  }

  // As the op's inputs are, from `first` on.
  static Packed FromInputs(tensorflow::OpKernelContext* context, int first, int count) {
    std::vector<tensorflow::TensorShape> shapes;
    for (int i = first; i < first + count; ++i) {
      shapes.push_back(context->input(i).shape());
    }
    return Packed(context->input(first).dtype(), shapes);
  }

  size_t count() const { return shapes_.size(); }
  size_t bytes() const { return begins_.back(); }
  size_t elements() const { return bytes() / SizeOf(type()); }
  // With the zeros behind it.
  size_t elements(size_t index) const {
    return (begins_[index + 1] - begins_[index]) / SizeOf(type());
  }
  ElementType type() const { return ElementTypeOf(type_); }

  // Where a tensor's values belong; what lies behind them until the next one is set to zero.
  char* Place(size_t index, Payload* buffer) const {
    char* const begin = static_cast<char*>(buffer->mutable_data()) + begins_[index];
    const size_t used = Bytes(shapes_[index]);
    std::memset(begin + used, 0, begins_[index + 1] - begins_[index] - used);
    return begin;
  }

  // The tensors in a buffer, as the op's outputs from the first on.
  void Output(const Payload& buffer, tensorflow::OpKernelContext* context) const {
    for (size_t i = 0; i < count(); ++i) {
      Payload part = buffer.Part(begins_[i], Bytes(shapes_[i]));
      context->set_output(static_cast<int>(i), TensorOf(type_, shapes_[i], std::move(part)));
    }
  }

 private:
  size_t Bytes(const tensorflow::TensorShape& shape) const {
    return static_cast<size_t>(shape.num_elements()) * SizeOf(type());
  }

  tensorflow::DataType type_ = tensorflow::DT_FLOAT;
  std::vector<tensorflow::TensorShape> shapes_;
  std::vector<size_t> begins_ = {0};  // one more than there are tensors
};

// Copies inputs of one type into one buffer.
inline Payload PackInputs(tensorflow::OpKernelContext* context, int first, int count) {
  const Packed packed = Packed::FromInputs(context, first, count);
  Payload values = Payload::Allocate(packed.bytes());
  for (int i = 0; i < count; ++i) {
    const tensorflow::Tensor& input = context->input(first + i);
    std::memcpy(packed.Place(static_cast<size_t>(i), &values), input.data(), input.TotalBytes());
  }
  return values;
}

// Outputs of the attribute shapes, and after them scalars.
inline absl::Status ShapesOfAttribute(tensorflow::shape_inference::InferenceContext* context) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
  for (int i = 0; i < context->num_outputs(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape = context->Scalar();
    if (static_cast<size_t>(i) < shapes.size()) {
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    }
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_PACKED_H_
