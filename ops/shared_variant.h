// A scalar tensor that shares an object of the runtime: how ops hand each other what is no array.

#ifndef TREPAK_OPS_SHARED_VARIANT_H_
#define TREPAK_OPS_SHARED_VARIANT_H_

#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace trepak {

// What the tensor holds. It does not leave the process, so that it can't be encoded.
template <typename Object>
struct SharedVariant {
  std::shared_ptr<Object> object;

  std::string TypeName() const { return std::string("trepak::") + Object::kName; }
  void Encode(tensorflow::VariantTensorData*) const {}
  bool Decode(tensorflow::VariantTensorData) { return false; }
};

template <typename Object>
void OutputShared(tensorflow::OpKernelContext* context, int output,
                  std::shared_ptr<Object> object) {
  tensorflow::Tensor tensor(tensorflow::DT_VARIANT, {});
  tensor.scalar<tensorflow::Variant>()() = SharedVariant<Object>{std::move(object)};
  context->set_output(output, tensor);
}

// Null, with the op's error set, if the input holds something else.
template <typename Object>
std::shared_ptr<Object> SharedInput(tensorflow::OpKernelContext* context, int input) {
  const tensorflow::Tensor& tensor = context->input(input);
  const SharedVariant<Object>* const shared =
      tensor.NumElements() == 1 ? tensor.flat<tensorflow::Variant>()(0).get<SharedVariant<Object>>()
                                : nullptr;
  if (shared == nullptr || shared->object == nullptr) {
    context->SetStatus(absl::InvalidArgumentError(std::string("trepak: this op takes a ") +
                                                  Object::kName + ", which another one has made"));
    return nullptr;
  }
  return shared->object;
}

}  // namespace trepak

#endif  // TREPAK_OPS_SHARED_VARIANT_H_
