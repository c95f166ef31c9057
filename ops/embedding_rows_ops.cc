// Reads and writes rows of embeddings: initial values, checkpoints.

#include <cstdint>
#include <memory>
#include <string>

#include "ops/embedding_stores.h"
#include "ops/op_helpers.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TrepakEmbeddingRead")
    .Input("shard: int64")
    .Input("first_row: int64")
    .Input("count: int64")
    .Output("rows: float")
    .Attr("with_slots: bool = false")
    .Attr("store: int")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->UnknownShapeOfRank(2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns rows of a shard of this rank.

shard: its number in the plan.
with_slots: with what the optimizer keeps, behind the weights.
)doc");

REGISTER_OP("TrepakEmbeddingWrite")
    .Input("shard: int64")
    .Input("first_row: int64")
    .Input("rows: float")
    .Attr("with_slots: bool = false")
    .Attr("store: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Sets rows of a shard of this rank; see TrepakEmbeddingRead.");

// Reads or writes a block of rows.
class EmbeddingRowsOp : public EmbeddingStoreOp {
 public:
  explicit EmbeddingRowsOp(tensorflow::OpKernelConstruction* context) : EmbeddingStoreOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("with_slots", &with_slots_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<EmbeddingStore> store = FindOrFail(context);
    if (store == nullptr) {
      return;
    }
    OP_REQUIRES_OK(context, CheckScalarInputs(context, 0, 2));
    const auto shard = static_cast<size_t>(context->input(0).scalar<int64_t>()());
    const int64_t first_row = context->input(1).scalar<int64_t>()();
    size_t width = 0;
    OP_REQUIRES_OK(context, ToEmbeddingError(store->Width(shard, with_slots_, &width)));
    Access(context, store.get(), shard, first_row, static_cast<int64_t>(width));
  }

 protected:
  virtual void Access(tensorflow::OpKernelContext* context, EmbeddingStore* store, size_t shard,
                      int64_t first_row, int64_t width) const = 0;

  bool with_slots_ = false;
};

class EmbeddingReadOp : public EmbeddingRowsOp {
 public:
  using EmbeddingRowsOp::EmbeddingRowsOp;

 protected:
  void Access(tensorflow::OpKernelContext* context, EmbeddingStore* store, size_t shard,
              int64_t first_row, int64_t width) const override {
    OP_REQUIRES_OK(context, CheckScalarInputs(context, 2, 1));
    const int64_t count = context->input(2).scalar<int64_t>()();
    // Before memory is taken for them.
    OP_REQUIRES_OK(context, ToEmbeddingError(store->CheckRows(shard, first_row, count)));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {count, width}, &rows));
    OP_REQUIRES_OK(context, ToEmbeddingError(store->Read(shard, first_row, count, with_slots_,
                                                         rows->flat<float>().data())));
  }
};

class EmbeddingWriteOp : public EmbeddingRowsOp {
 public:
  using EmbeddingRowsOp::EmbeddingRowsOp;

 protected:
  void Access(tensorflow::OpKernelContext* context, EmbeddingStore* store, size_t shard,
              int64_t first_row, int64_t width) const override {
    const Tensor& rows = context->input(2);
    OP_REQUIRES(
        context, rows.dims() == 2 && rows.dim_size(1) == width,
        absl::InvalidArgumentError("trepak: rows of shard " + std::to_string(shard) + " have " +
                                   std::to_string(width) + " numbers, but their shape is " +
                                   rows.shape().DebugString()));
    OP_REQUIRES_OK(context, ToEmbeddingError(store->Write(shard, first_row, rows.dim_size(0),
                                                          with_slots_, rows.flat<float>().data())));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingRead").Device(tensorflow::DEVICE_CPU),
                        EmbeddingReadOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingWrite").Device(tensorflow::DEVICE_CPU),
                        EmbeddingWriteOp);

}  // namespace
}  // namespace trepak
