// What samples say of the rows that they look up, on its way to the rows' owners.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/embedding_stores.h"
#include "ops/op_helpers.h"
#include "ops/runtime/sven/embedding_importance.h"
#include "ops/shared_variant.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TrepakEmbeddingImportance")
    .Input("routing: variant")
    .Input("labels: float")
    .Output("importance: float")
    .Output("splits: int64")
    .Attr("positive: float = 1.0")
    .Attr("negative: float = 1.0")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Vector(InferenceContext::kUnknownDim));
      context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Weighs the samples in which each row occurs that a step asks for (thesis, equation 6.3).

routing: what TrepakEmbeddingRoute has made.
labels: one for each sample; above 0.5: it is positive.
importance: of each row that is requested, in the order of requests.
splits: how many of them are for each rank.
positive: what a positive sample weighs.
negative: what a negative sample weighs.
)doc");

REGISTER_OP("TrepakEmbeddingScore")
    .Input("requests: int64")
    .Input("request_splits: int64")
    .Input("importance: float")
    .Attr("store: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Counts the rows that were requested, for the scores by which rows are placed.

importance: of each row, in the order of requests.
)doc");

class EmbeddingImportanceOp : public tensorflow::OpKernel {
 public:
  explicit EmbeddingImportanceOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("positive", &weights_.positive));
    OP_REQUIRES_OK(context, context->GetAttr("negative", &weights_.negative));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const auto routing = SharedInput<const EmbeddingRouting>(context, 0);
    if (routing == nullptr) {
      return;
    }
    std::vector<float> importance;
    std::vector<int64_t> splits;
    OP_REQUIRES_OK(
        context, ToEmbeddingError(WeighRows(*routing, NumbersOf<float>(context->input(1)), weights_,
                                            &importance, &splits)));
    Output(context, 0, importance);
    Output(context, 1, splits);
  }

 private:
  template <typename Element>
  static void Output(tensorflow::OpKernelContext* context, int output,
                     const std::vector<Element>& values) {
    Tensor* tensor = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(output, {static_cast<int64_t>(values.size())}, &tensor));
    std::copy(values.begin(), values.end(), tensor->flat<Element>().data());
  }

  SampleWeights weights_;
};

class EmbeddingScoreOp : public EmbeddingStoreOp {
 public:
  using EmbeddingStoreOp::EmbeddingStoreOp;

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<EmbeddingStore> store = FindOrFail(context);
    if (store == nullptr) {
      return;
    }
    EmbeddingRequests requests;
    OP_REQUIRES_OK(
        context, ToEmbeddingError(store->Parse(NumbersOf<int64_t>(context->input(0)),
                                               NumbersOf<int64_t>(context->input(1)), &requests)));
    OP_REQUIRES_OK(context,
                   ToEmbeddingError(store->Score(requests, NumbersOf<float>(context->input(2)))));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingImportance").Device(tensorflow::DEVICE_CPU),
                        EmbeddingImportanceOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingScore").Device(tensorflow::DEVICE_CPU),
                        EmbeddingScoreOp);

}  // namespace
}  // namespace trepak
