// The stores of embeddings of this process, by number, and what passes between their ops.

#ifndef TREPAK_OPS_EMBEDDING_STORES_H_
#define TREPAK_OPS_EMBEDDING_STORES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ops/numbered.h"
#include "ops/runtime/sven/embedding_device.h"
#include "ops/runtime/sven/embedding_routing.h"
#include "ops/runtime/sven/embedding_store.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace trepak {

// The stores that are open.
class EmbeddingStores : public Numbered<EmbeddingStore> {
 public:
  static absl::Status NotOpen(int64_t number) {
    return absl::FailedPreconditionError("trepak: the store of embeddings " +
                                         std::to_string(number) + " is not open");
  }
};

// Devices that an op has found, for the call that opens a store.
using EmbeddingDevices = Numbered<EmbeddingDevice>;

inline absl::Status ToEmbeddingError(Status status) {
  return ToAbslStatus(std::move(status.Annotate("trepak")));
}

// Fails unless inputs from `first` on are scalars.
inline absl::Status CheckScalarInputs(tensorflow::OpKernelContext* context, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    if (!tensorflow::TensorShapeUtils::IsScalar(context->input(i).shape())) {
      return absl::InvalidArgumentError("trepak: input " + std::to_string(i) +
                                        " must be a scalar, but its shape is " +
                                        context->input(i).shape().DebugString());
    }
  }
  return absl::OkStatus();
}

// An op of the store that its attribute names.
class EmbeddingStoreOp : public tensorflow::OpKernel {
 public:
  explicit EmbeddingStoreOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("store", &number_));
  }

 protected:
  // Null, with the op's error set, if the store is not open.
  std::shared_ptr<EmbeddingStore> FindOrFail(tensorflow::OpKernelContext* context) const {
    std::shared_ptr<EmbeddingStore> store = EmbeddingStores::Global().Find(number_);
    if (store == nullptr) {
      context->CtxFailure(EmbeddingStores::NotOpen(number_));
    }
    return store;
  }

 private:
  int64_t number_ = 0;
};

// A tensor of one type as its numbers.
template <typename Element>
Span<Element> NumbersOf(const tensorflow::Tensor& tensor) {
  return {static_cast<const Element*>(tensor.data()), static_cast<size_t>(tensor.NumElements())};
}

}  // namespace trepak

#endif  // TREPAK_OPS_EMBEDDING_STORES_H_
