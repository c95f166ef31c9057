// The stores of embeddings of this process, by number, and what passes between their ops.

#ifndef TREPAK_OPS_EMBEDDING_STORES_H_
#define TREPAK_OPS_EMBEDDING_STORES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ops/runtime/sven/embedding_routing.h"
#include "ops/runtime/sven/embedding_store.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace trepak {

// Owns the stores that are open; an op that is using one keeps it until it is done. Thread safety:
// every method may be called from any thread.
class EmbeddingStores {
 public:
  // Returns its number, which no other store gets.
  int64_t Add(std::shared_ptr<EmbeddingStore> store) {
    std::lock_guard<std::mutex> lock(mutex_);
    stores_.emplace(++last_, std::move(store));
    return last_;
  }

  // Null if there is none.
  std::shared_ptr<EmbeddingStore> Find(int64_t number) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = stores_.find(number);
    return found == stores_.end() ? nullptr : found->second;
  }

  // Returns it, for the caller to let go of; null if there is none.
  std::shared_ptr<EmbeddingStore> Close(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = stores_.find(number);
    if (found == stores_.end()) {
      return nullptr;
    }
    std::shared_ptr<EmbeddingStore> store = std::move(found->second);
    stores_.erase(found);
    return store;
  }

  static absl::Status NotOpen(int64_t number) {
    return absl::FailedPreconditionError("trepak: the store of embeddings " +
                                         std::to_string(number) + " is not open");
  }

  // Those of this process.
  static EmbeddingStores& Global() {
    static auto* const stores = new EmbeddingStores;
    return *stores;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<EmbeddingStore>> stores_;  // Guarded by mutex_.
  int64_t last_ = 0;                                           // Guarded by mutex_.
};

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
