// A step's way to rows of embeddings: which are asked for, what owners answer, what they update.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/embedding_stores.h"
#include "ops/op_helpers.h"
#include "ops/shared_variant.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

// All outputs are vectors, but for a scalar at the end if `ends_with_scalar`.
template <bool ends_with_scalar>
absl::Status Vectors(InferenceContext* context) {
  for (int i = 0; i < context->num_outputs(); ++i) {
    const bool is_scalar = ends_with_scalar && i + 1 == context->num_outputs();
    context->set_output(
        i, is_scalar ? context->Scalar() : context->Vector(InferenceContext::kUnknownDim));
  }
  return absl::OkStatus();
}

REGISTER_OP("TrepakEmbeddingRoute")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Output("requests: int64")
    .Output("request_splits: int64")
    .Output("value_splits: int64")
    .Output("routing: variant")
    .Attr("num_features: int >= 1")
    .Attr("features: list(string)")
    .Attr("tables: list(int)")
    .Attr("store: int")
    .SetIsStateful()
    .SetShapeFn(Vectors<true>)
    .Doc(R"doc(
Finds the rows that a step's ids are of, and who has them.

ids: of each feature, all samples' one after the other.
row_splits: of each feature, where the ids of a sample begin, and the end of the last one's.
requests: for each rank in turn, what it is asked for.
request_splits: how much of that is for each rank.
value_splits: how many numbers each rank will answer.
routing: what combines the answers.
features: their names, for messages.
tables: of each feature, the number of its table.
)doc");

REGISTER_OP("TrepakEmbeddingLookup")
    .Input("requests: int64")
    .Input("request_splits: int64")
    .Output("values: float")
    .Output("value_splits: int64")
    .Attr("store: int")
    .Attr("permits: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(Vectors<false>)
    .Doc(R"doc(
Answers the requests of all ranks to this one with the weights of rows.

permits: how many look-ups may be ahead of their updates, this one included; 0: nobody counts.
)doc");

REGISTER_OP("TrepakEmbeddingUpdate")
    .Input("requests: int64")
    .Input("request_splits: int64")
    .Input("gradients: float")
    .Input("learning_rates: float")
    .Input("step: int64")
    .Input("scale: float")
    .Attr("store: int")
    .Attr("permits: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Updates the rows that were requested, each once with the sum of its gradients.

gradients: of all that was answered, in its order.
learning_rates: by table.
step: the number of this update, from 1 on.
scale: by which sums are multiplied.
permits: those of the look-up.
)doc");

void OutputVector(tensorflow::OpKernelContext* context, int output,
                  const std::vector<int64_t>& values) {
  Tensor* tensor = nullptr;
  OP_REQUIRES_OK(context,
                 context->allocate_output(output, {static_cast<int64_t>(values.size())}, &tensor));
  std::copy(values.begin(), values.end(), tensor->flat<int64_t>().data());
}

class EmbeddingRouteOp : public EmbeddingStoreOp {
 public:
  explicit EmbeddingRouteOp(tensorflow::OpKernelConstruction* context) : EmbeddingStoreOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("features", &features_));
    OP_REQUIRES_OK(context, context->GetAttr("tables", &tables_));
    const auto count = static_cast<size_t>(context->num_inputs()) / 2;
    OP_REQUIRES(context, features_.size() == count && tables_.size() == count,
                absl::InvalidArgumentError("trepak: each feature has a name and a table"));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<EmbeddingStore> store = FindOrFail(context);
    if (store == nullptr) {
      return;
    }
    const int count = static_cast<int>(features_.size());
    std::vector<FeatureIds> features;
    for (int i = 0; i < count; ++i) {
      features.push_back(
          {features_[static_cast<size_t>(i)], static_cast<size_t>(tables_[static_cast<size_t>(i)]),
           NumbersOf<int64_t>(context->input(i)), NumbersOf<int64_t>(context->input(count + i))});
    }
    const auto allocate = [context](size_t size) {
      Tensor* requests = nullptr;
      const absl::Status status =
          context->allocate_output(0, {static_cast<int64_t>(size)}, &requests);
      return status.ok() ? requests->flat<int64_t>().data() : nullptr;
    };
    std::shared_ptr<const EmbeddingRouting> routing;
    OP_REQUIRES_OK(context, ToEmbeddingError(EmbeddingRouting::Make(store->plan(), features,
                                                                    allocate, &routing)));
    store->CountRouting(*routing);
    OutputVector(context, 1, routing->request_splits());
    OutputVector(context, 2, routing->value_splits());
    OutputShared(context, 3, std::move(routing));
  }

 private:
  std::vector<std::string> features_;
  std::vector<int64_t> tables_;
};

class EmbeddingLookupOp : public EmbeddingStoreOp {
 public:
  explicit EmbeddingLookupOp(tensorflow::OpKernelConstruction* context)
      : EmbeddingStoreOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("permits", &permits_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<EmbeddingStore> store = FindOrFail(context);
    if (store == nullptr) {
      return;
    }
    EmbeddingRequests requests;
    OP_REQUIRES_OK(
        context, ToEmbeddingError(store->Parse(NumbersOf<int64_t>(context->input(0)),
                                               NumbersOf<int64_t>(context->input(1)), &requests)));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, {static_cast<int64_t>(requests.values())}, &values));
    const Status status =
        store->LookUp(requests, values->flat<float>().data(), static_cast<uint64_t>(permits_));
    OP_REQUIRES_OK(context, ToEmbeddingError(status));
    OutputVector(context, 1, requests.value_splits());
  }

 private:
  int64_t permits_ = 0;
};

class EmbeddingUpdateOp : public EmbeddingStoreOp {
 public:
  explicit EmbeddingUpdateOp(tensorflow::OpKernelConstruction* context)
      : EmbeddingStoreOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("permits", &permits_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<EmbeddingStore> store = FindOrFail(context);
    if (store == nullptr) {
      return;
    }
    OP_REQUIRES_OK(context, CheckScalarInputs(context, 4, 2));
    EmbeddingRequests requests;
    OP_REQUIRES_OK(
        context, ToEmbeddingError(store->Parse(NumbersOf<int64_t>(context->input(0)),
                                               NumbersOf<int64_t>(context->input(1)), &requests)));
    EmbeddingStore::Step step;
    step.learning_rates = NumbersOf<float>(context->input(3));
    step.number = context->input(4).scalar<int64_t>()();
    step.scale = context->input(5).scalar<float>()();
    step.gives_permit = permits_ != 0;
    OP_REQUIRES_OK(context, ToEmbeddingError(store->Update(
                                requests, NumbersOf<float>(context->input(2)), step)));
  }

 private:
  int64_t permits_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingRoute").Device(tensorflow::DEVICE_CPU),
                        EmbeddingRouteOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingLookup").Device(tensorflow::DEVICE_CPU),
                        EmbeddingLookupOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingUpdate").Device(tensorflow::DEVICE_CPU),
                        EmbeddingUpdateOp);

}  // namespace
}  // namespace trepak
