// From rows of embeddings to one row per sample, and back with gradients.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/embedding_stores.h"
#include "ops/runtime/sven/embedding_combine.h"
#include "ops/shared_variant.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TrepakEmbeddingCombine")
    .Input("routing: variant")
    .Input("values: float")
    .Input("weights: num_features * float")
    .Output("outputs: num_features * float")
    .Attr("num_features: int >= 1")
    .Attr("combiners: list({'mean', 'sum', 'sqrtn'})")
    .Attr("reduces: list(bool)")
    .Attr("dims: list(int)")
    .SetShapeFn([](InferenceContext* context) {
      std::vector<int64_t> dims;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      if (dims.size() != static_cast<size_t>(context->num_outputs())) {
        return absl::InvalidArgumentError("trepak: each feature has an element of dims");
      }
      for (int i = 0; i < context->num_outputs(); ++i) {
        context->set_output(
            i, context->Matrix(InferenceContext::kUnknownDim, dims[static_cast<size_t>(i)]));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Makes one row per sample of what owners have answered.

values: what came back, of all owners.
weights: of each feature, one for each id, or none at all.
outputs: of each feature, [samples, columns].
combiners: of each feature, as KerasRS' EmbedReduce has them.
reduces: of each feature: false if samples have one id each.
dims: of each feature, the columns of its table.
)doc");

REGISTER_OP("TrepakEmbeddingSpread")
    .Input("routing: variant")
    .Input("gradients: num_features * float")
    .Input("weights: num_features * float")
    .Output("values: float")
    .Attr("num_features: int >= 1")
    .Attr("combiners: list({'mean', 'sum', 'sqrtn'})")
    .Attr("reduces: list(bool)")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the gradient of what owners have answered, in its order.

gradients: of each output of TrepakEmbeddingCombine.
)doc");

class EmbeddingReductionOp : public tensorflow::OpKernel {
 public:
  explicit EmbeddingReductionOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    static const std::map<std::string, Combiner> names = {
        {"mean", Combiner::kMean}, {"sum", Combiner::kSum}, {"sqrtn", Combiner::kSqrtn}};
    std::vector<std::string> combiners;
    std::vector<bool> reduces;
    OP_REQUIRES_OK(context, context->GetAttr("combiners", &combiners));
    OP_REQUIRES_OK(context, context->GetAttr("reduces", &reduces));
    OP_REQUIRES_OK(context, context->GetAttr("num_features", &features_));
    const auto count = static_cast<size_t>(features_);
    OP_REQUIRES(context, combiners.size() == count && reduces.size() == count,
                absl::InvalidArgumentError("trepak: each feature has a combiner, and reduces"));
    for (size_t i = 0; i < count; ++i) {
      reductions_.push_back({names.at(combiners[i]), reduces[i], {}});
    }
  }

 protected:
  // Null, with the op's error set, if the first input is not one for as many features.
  std::shared_ptr<const EmbeddingRouting> FindOrFail(tensorflow::OpKernelContext* context) const {
    auto routing = SharedInput<const EmbeddingRouting>(context, 0);
    if (routing != nullptr && routing->features().size() != reductions_.size()) {
      context->CtxFailure(absl::InvalidArgumentError(
          "trepak: the routing must be what TrepakEmbeddingRoute has made of these features"));
      routing = nullptr;
    }
    return routing;
  }

  // With the weights, of which inputs from `first` on are.
  std::vector<Reduction> Reductions(tensorflow::OpKernelContext* context, int first) const {
    std::vector<Reduction> reductions = reductions_;
    for (size_t i = 0; i < reductions.size(); ++i) {
      reductions[i].weights = NumbersOf<float>(context->input(first + static_cast<int>(i)));
    }
    return reductions;
  }

  int features() const { return features_; }

 private:
  int features_ = 0;
  std::vector<Reduction> reductions_;
};

class EmbeddingCombineOp : public EmbeddingReductionOp {
 public:
  explicit EmbeddingCombineOp(tensorflow::OpKernelConstruction* context)
      : EmbeddingReductionOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("dims", &dims_));
    OP_REQUIRES(context, dims_.size() == static_cast<size_t>(features()),
                absl::InvalidArgumentError("trepak: each feature has an element of dims"));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<const EmbeddingRouting> routing = FindOrFail(context);
    if (routing == nullptr) {
      return;
    }
    std::vector<float*> outputs;
    for (int i = 0; i < features(); ++i) {
      const EmbeddingRouting::Feature& feature = routing->features()[static_cast<size_t>(i)];
      const EmbeddingTable& table = routing->plan().tables()[feature.table];
      OP_REQUIRES(context, dims_[static_cast<size_t>(i)] == table.dim,
                  absl::InvalidArgumentError("trepak: feature '" + feature.name + "' has " +
                                             std::to_string(table.dim) + " columns, not " +
                                             std::to_string(dims_[static_cast<size_t>(i)])));
      Tensor* output = nullptr;
      OP_REQUIRES_OK(
          context, context->allocate_output(i, {static_cast<int64_t>(feature.samples()), table.dim},
                                            &output));
      outputs.push_back(output->flat<float>().data());
    }
    const Status status =
        Combine(*routing, Reductions(context, 2), NumbersOf<float>(context->input(1)), outputs);
    OP_REQUIRES_OK(context, ToEmbeddingError(status));
  }

 private:
  std::vector<int64_t> dims_;
};

class EmbeddingSpreadOp : public EmbeddingReductionOp {
 public:
  using EmbeddingReductionOp::EmbeddingReductionOp;

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<const EmbeddingRouting> routing = FindOrFail(context);
    if (routing == nullptr) {
      return;
    }
    std::vector<Span<float>> gradients;
    for (int i = 0; i < features(); ++i) {
      gradients.push_back(NumbersOf<float>(context->input(1 + i)));
    }
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, {static_cast<int64_t>(routing->values())}, &values));
    const Status status = Spread(*routing, Reductions(context, 1 + features()), gradients,
                                 values->flat<float>().data());
    OP_REQUIRES_OK(context, ToEmbeddingError(status));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingCombine").Device(tensorflow::DEVICE_CPU),
                        EmbeddingCombineOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingSpread").Device(tensorflow::DEVICE_CPU),
                        EmbeddingSpreadOp);

}  // namespace
}  // namespace trepak
