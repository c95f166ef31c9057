// Reads and writes rows of embeddings of any rank: initial values, files.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ops/embedding_stores.h"
#include "ops/op_helpers.h"
#include "ops/runtime/sven/embedding_peer.h"
#include "ops/session_ops.h"
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
    .Attr("session: int = -1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->UnknownShapeOfRank(2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns rows of a shard. Another rank's have seen as many updates as this rank has applied.

shard: its number in the plan.
with_slots: with what is behind the weights: what the optimizer keeps, and how often a row was seen.
session: of the system "embeddings"; without one the shard must be one of this rank.
)doc");

REGISTER_OP("TrepakEmbeddingWrite")
    .Input("shard: int64")
    .Input("first_row: int64")
    .Input("rows: float")
    .Attr("with_slots: bool = false")
    .Attr("store: int")
    .Attr("session: int = -1")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Sets rows of a shard, and ends when its rank has them; see TrepakEmbeddingRead.");

// Reads or writes a block of rows, of this rank's at once.
class EmbeddingRowsOp : public tensorflow::AsyncOpKernel {
 public:
  explicit EmbeddingRowsOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("with_slots", &with_slots_));
    OP_REQUIRES_OK(context, context->GetAttr("store", &store_));
    OP_REQUIRES_OK(context, context->GetAttr("session", &session_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<EmbeddingStore> store = EmbeddingStores::Global().Find(store_);
    OP_REQUIRES_ASYNC(context, store != nullptr, EmbeddingStores::NotOpen(store_), done);
    EmbeddingBlock block;
    OP_REQUIRES_OK_ASYNC(context, BlockOf(context, *store->plan(), &block), done);
    const auto& shard = store->plan()->shards()[block.shard];
    if (session_ < 0 || shard.rank == store->rank()) {
      context->SetStatus(ToEmbeddingError(Access(context, store.get(), block)));
      done();
      return;
    }
    const auto session =
        Sessions::Global().Find(EmbeddingPeer::kSystem, static_cast<uint32_t>(session_));
    const auto peer = session == nullptr ? nullptr : session->Find<EmbeddingPeer>(0);
    OP_REQUIRES_ASYNC(context, peer != nullptr,
                      absl::FailedPreconditionError("trepak: " + Described(*store->plan(), block) +
                                                    " are of rank " + std::to_string(shard.rank) +
                                                    ", which can't be asked any more: Horovod " +
                                                    "was shut down. Save tables before that"),
                      done);
    Ask(context, std::move(done), peer, block);
  }

 protected:
  // All but the block's count and shape, which subclasses know.
  virtual absl::Status Complete(tensorflow::OpKernelContext* context, int64_t width,
                                EmbeddingBlock* block) const = 0;
  virtual Status Access(tensorflow::OpKernelContext* context, EmbeddingStore* store,
                        const EmbeddingBlock& block) const = 0;
  // Keeps the peer until that has answered.
  virtual void Ask(tensorflow::OpKernelContext* context, DoneCallback done,
                   std::shared_ptr<EmbeddingPeer> peer, const EmbeddingBlock& block) const = 0;

  // Of the peer: its own failures are those of its flows, refusals are not.
  static absl::Status ErrorOf(const Status& status) {
    return status.code() == StatusCode::kFailedPrecondition ? ToEmbeddingError(status)
                                                            : ToFlowError(status);
  }

 private:
  absl::Status BlockOf(tensorflow::OpKernelContext* context, const EmbeddingPlan& plan,
                       EmbeddingBlock* block) const {
    TF_RETURN_IF_ERROR(CheckScalarInputs(context, 0, 2));
    const int64_t number = context->input(0).scalar<int64_t>()();
    if (number < 0 || number >= static_cast<int64_t>(plan.shards().size())) {
      return absl::InvalidArgumentError("trepak: there is no shard " + std::to_string(number) +
                                        " of embedding tables");
    }
    block->shard = static_cast<size_t>(number);
    block->first_row = context->input(1).scalar<int64_t>()();
    block->with_slots = with_slots_;
    return Complete(context, static_cast<int64_t>(plan.WidthOf(block->shard, with_slots_)), block);
  }

  bool with_slots_ = false;
  int64_t store_ = 0;
  int64_t session_ = -1;
};

class EmbeddingReadOp : public EmbeddingRowsOp {
 public:
  using EmbeddingRowsOp::EmbeddingRowsOp;

 protected:
  absl::Status Complete(tensorflow::OpKernelContext* context, int64_t,
                        EmbeddingBlock* block) const override {
    TF_RETURN_IF_ERROR(CheckScalarInputs(context, 2, 1));
    block->count = context->input(2).scalar<int64_t>()();
    return absl::OkStatus();
  }

  Status Access(tensorflow::OpKernelContext* context, EmbeddingStore* store,
                const EmbeddingBlock& block) const override {
    // Before memory is taken for them.
    TREPAK_RETURN_IF_ERROR(store->CheckRows(block.shard, block.first_row, block.count));
    float* const rows = Output(context, *store->plan(), block);
    return rows == nullptr
               ? ResourceExhaustedError("no memory for " + Described(*store->plan(), block))
               : store->Read(block.shard, block.first_row, block.count, block.with_slots, rows);
  }

  void Ask(tensorflow::OpKernelContext* context, DoneCallback done,
           std::shared_ptr<EmbeddingPeer> peer, const EmbeddingBlock& block) const override {
    EmbeddingPeer* const asked = peer.get();
    asked->Read(block, [context, done = std::move(done), peer = std::move(peer), block](
                           const Status& status, const Payload& rows) {
      float* const output = status.ok() ? Output(context, peer->plan(), block) : nullptr;
      if (!status.ok()) {
        context->SetStatus(ErrorOf(status));
      } else if (output != nullptr) {
        std::copy_n(static_cast<const char*>(rows.data()), rows.size(),
                    reinterpret_cast<char*>(output));
      }
      done();
    });
  }

 private:
  // Null, with the op's error set, if there is no memory.
  static float* Output(tensorflow::OpKernelContext* context, const EmbeddingPlan& plan,
                       const EmbeddingBlock& block) {
    Tensor* rows = nullptr;
    const auto width = static_cast<int64_t>(plan.WidthOf(block.shard, block.with_slots));
    const absl::Status status = context->allocate_output(0, {block.count, width}, &rows);
    if (!status.ok()) {
      context->SetStatus(status);
      return nullptr;
    }
    return rows->flat<float>().data();
  }
};

class EmbeddingWriteOp : public EmbeddingRowsOp {
 public:
  using EmbeddingRowsOp::EmbeddingRowsOp;

 protected:
  absl::Status Complete(tensorflow::OpKernelContext* context, int64_t width,
                        EmbeddingBlock* block) const override {
    const Tensor& rows = context->input(2);
    if (rows.dims() != 2 || rows.dim_size(1) != width) {
      return absl::InvalidArgumentError(
          "trepak: rows of shard " + std::to_string(block->shard) + " have " +
          std::to_string(width) + " numbers, but their shape is " + rows.shape().DebugString());
    }
    block->count = rows.dim_size(0);
    return absl::OkStatus();
  }

  Status Access(tensorflow::OpKernelContext* context, EmbeddingStore* store,
                const EmbeddingBlock& block) const override {
    return store->Write(block.shard, block.first_row, block.count, block.with_slots,
                        context->input(2).flat<float>().data());
  }

  void Ask(tensorflow::OpKernelContext* context, DoneCallback done,
           std::shared_ptr<EmbeddingPeer> peer, const EmbeddingBlock& block) const override {
    const auto owner = std::make_shared<Tensor>(context->input(2));
    const Payload rows(owner->data(), owner->TotalBytes(), owner);
    EmbeddingPeer* const asked = peer.get();
    asked->Write(block, rows,
                 [context, done = std::move(done), peer = std::move(peer)](const Status& status,
                                                                           const Payload&) {
                   context->SetStatus(ErrorOf(status));
                   done();
                 });
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingRead").Device(tensorflow::DEVICE_CPU),
                        EmbeddingReadOp);
REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingWrite").Device(tensorflow::DEVICE_CPU),
                        EmbeddingWriteOp);

}  // namespace
}  // namespace trepak
