// Parameter Chunks as tensors: a Trainer puts what its token has made, and takes what it needs.

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/fela_names.h"
#include "ops/fela_parts.h"
#include "ops/op_helpers.h"
#include "ops/payload_tensor.h"
#include "ops/runtime/fela/fela_peer.h"
#include "ops/session_ops.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TrepakFelaPut")
    .Input("names: int64")
    .Input("rows: int64")
    .Input("tensors: T")
    .Attr("session: int")
    .Attr("T: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Keeps chunks that this worker has made, without copying them.

names: by chunk, iteration, token and kind (FelaChunkKind).
rows: by chunk, how many rows of each tensor it has: those behind the rows of the chunk before.
tensors: of any dtype whose elements have a fixed size.
)doc");

REGISTER_OP("TrepakFelaTake")
    .Input("wanted: int64")
    .Output("tensors: dtypes")
    .Attr("session: int")
    .Attr("dtypes: list(type) >= 1")
    .Attr("row_shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      std::vector<tensorflow::PartialTensorShape> rows;
      TF_RETURN_IF_ERROR(context->GetAttr("row_shapes", &rows));
      for (int i = 0; i < context->num_outputs() && i < static_cast<int>(rows.size()); ++i) {
        tensorflow::shape_inference::ShapeHandle shape;
        TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(
            tensorflow::PartialTensorShape({-1}).Concatenate(rows[i]), &shape));
        context->set_output(i, shape);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Waits until chunks are here. Returns their tensors: of each, the rows of all chunks in their order.

wanted: by chunk, iteration, token, kind and the rank that holds it.
dtypes, row_shapes: by tensor; those of all these chunks.
)doc");

// What a caller did wrong is said plainly: no other try would make it right.
absl::Status ErrorOf(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition
             ? absl::FailedPreconditionError("trepak: " + std::string(status.message()))
             : ToFlowError(status);
}

absl::Status CheckTypes(const std::vector<DataType>& types) {
  for (size_t i = 0; i < types.size(); ++i) {
    if (!tensorflow::DataTypeCanUseMemcpy(types[i])) {
      return FelaMisuse(
          "tensor " + std::to_string(i) + " of Fela's chunks is of " +
          tensorflow::DataTypeString(types[i]) +
          ", whose elements have no fixed size: encode them as numbers before the cut");
    }
  }
  return absl::OkStatus();
}

// This rank's; null if the session is not open.
std::shared_ptr<FelaPeer> FindPeer(int64_t session) {
  const auto found = Sessions::Global().Find(FelaPeer::kSystem, static_cast<uint32_t>(session));
  return found == nullptr ? nullptr : found->Find<FelaPeer>(kFelaPeerPart);
}

class FelaPutOp : public tensorflow::OpKernel {
 public:
  explicit FelaPutOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    std::vector<DataType> types;
    OP_REQUIRES_OK(context, context->GetAttr("session", &session_));
    OP_REQUIRES_OK(context, context->GetAttr("T", &types));
    OP_REQUIRES_OK(context, CheckTypes(types));
  }

  void Compute(OpKernelContext* context) override {
    const std::shared_ptr<FelaPeer> peer = FindPeer(session_);
    OP_REQUIRES(context, peer != nullptr,
                ToFlowError(Sessions::Global().NotOpen(FelaPeer::kSystem)));
    const FelaNames names(context->input(0), FelaNames::kOnly);
    OP_REQUIRES_OK(context, names.Check());
    OP_REQUIRES_OK(context, CheckRows(context, names.size()));
    int64_t first = 0;
    for (int64_t i = 0; i < names.size(); ++i) {
      const int64_t rows = context->input(1).vec<int64_t>()(i);
      OP_REQUIRES_OK(context, ErrorOf(peer->Put(names.Name(i), Rows(context, first, rows))));
      first += rows;
    }
  }

 private:
  static absl::Status CheckRows(OpKernelContext* context, int64_t chunks) {
    const Tensor& rows = context->input(1);
    if (rows.dims() != 1 || rows.dim_size(0) != chunks) {
      return FelaMisuse("rows of Fela's chunks have the shape " + rows.shape().DebugString() +
                        ", not [" + std::to_string(chunks) + "]");
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t count = rows.vec<int64_t>()(i);
      const int64_t left = std::numeric_limits<int64_t>::max() - sum;
      if (count < 0 || count > left) {
        return FelaMisuse("a chunk of Fela has " + std::to_string(count) + " rows");
      }
      sum += count;
    }
    for (int i = kFirstTensor; i < context->num_inputs(); ++i) {
      const Tensor& tensor = context->input(i);
      if (tensor.dims() < 1 || tensor.dim_size(0) != sum) {
        return FelaMisuse("tensor " + std::to_string(i - kFirstTensor) + " of Fela's chunks is " +
                          tensor.shape().DebugString() + ", where they have " +
                          std::to_string(sum) + " rows together");
      }
    }
    return absl::OkStatus();
  }

  // Of each tensor some rows, with references, which keep their memory and keep others from writing
  // to it.
  static FelaTensors Rows(OpKernelContext* context, int64_t first, int64_t count) {
    FelaTensors parts;
    for (int i = kFirstTensor; i < context->num_inputs(); ++i) {
      auto tensor = std::make_shared<Tensor>(context->input(i));
      const int64_t all = tensor->dim_size(0);
      const size_t row = all == 0 ? 0 : tensor->TotalBytes() / static_cast<size_t>(all);
      char* const begin = static_cast<char*>(tensor->data()) + static_cast<size_t>(first) * row;
      parts.emplace_back(begin, static_cast<size_t>(count) * row, std::move(tensor));
    }
    return parts;
  }

  static constexpr int kFirstTensor = 2;  // of the inputs
  int64_t session_ = 0;
};

class FelaTakeOp : public tensorflow::AsyncOpKernel {
 public:
  explicit FelaTakeOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("session", &session_));
    OP_REQUIRES_OK(context, context->GetAttr("dtypes", &types_));
    OP_REQUIRES_OK(context, context->GetAttr("row_shapes", &rows_));
    OP_REQUIRES_OK(context, CheckTypes(types_));
    OP_REQUIRES(context, types_.size() == rows_.size(),
                FelaMisuse("Fela's chunks have " + std::to_string(types_.size()) + " dtypes and " +
                           std::to_string(rows_.size()) + " row shapes"));
    for (const TensorShape& row : rows_) {
      OP_REQUIRES(context, row.num_elements() > 0,
                  FelaMisuse("rows of Fela's chunks have the shape " + row.DebugString() +
                             ", with nothing in it"));
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<FelaPeer> peer = FindPeer(session_);
    OP_REQUIRES_ASYNC(context, peer != nullptr,
                      ToFlowError(Sessions::Global().NotOpen(FelaPeer::kSystem)), done);
    const FelaNames names(context->input(0), FelaNames::kWithHolder);
    OP_REQUIRES_OK_ASYNC(context, names.Check(), done);
    std::vector<FelaPeer::Wanted> wanted;
    for (int64_t i = 0; i < names.size(); ++i) {
      wanted.push_back({names.Name(i), names.Holder(i)});
    }
    // If another op of the step fails, nobody wants the chunks any more.
    tensorflow::CancellationManager* const cancellation = context->cancellation_manager();
    const uint64_t number = peer->DrawNumber();
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    tensorflow::CancellationToken token = tensorflow::CancellationManager::kInvalidToken;
    if (cancellation != nullptr) {  // calls without a graph have none
      token = cancellation->get_cancellation_token();
      const auto cancel = [peer, number, cancelled] {
        cancelled->store(true);
        peer->CancelTake(number);
      };
      OP_REQUIRES_ASYNC(context, cancellation->RegisterCallback(token, cancel),
                        absl::CancelledError("the step was cancelled"), done);
    }
    auto took = [this, context, cancellation, token, cancelled, done = std::move(done)](
                    const Status& status, std::vector<FelaTensors> chunks) {
      if (cancellation != nullptr) {
        cancellation->TryDeregisterCallback(token);
      }
      auto end = [this, context, done, status, cancelled, chunks = std::move(chunks)] {
        context->SetStatus(status.ok()         ? Output(context, chunks)
                           : cancelled->load() ? absl::CancelledError("the step was cancelled")
                                               : ErrorOf(status));
        done();
      };
      // In one of TensorFlow's threads: meanwhile others' chunks come in.
      context->device()->tensorflow_cpu_worker_threads()->workers->Schedule(std::move(end));
    };
    peer->Take(std::move(wanted), std::move(took), number);
    if (cancelled->load()) {
      peer->CancelTake(number);  // it was cancelled before it began to wait
    }
  }

 private:
  absl::Status Output(OpKernelContext* context, const std::vector<FelaTensors>& chunks) const {
    std::vector<int64_t> counts;
    TF_RETURN_IF_ERROR(CountRows(context, chunks, &counts));
    for (size_t i = 0; i < types_.size(); ++i) {
      TensorShape shape = rows_[i];
      int64_t sum = 0;
      for (const int64_t count : counts) {
        sum += count;
      }
      shape.InsertDim(0, sum);
      if (chunks.size() == 1 && IsAligned(chunks[0][i])) {
        context->set_output(static_cast<int>(i),
                            TensorOf(types_[i], shape, chunks[0][i], /*is_shared=*/true));
        continue;
      }
      Tensor* tensor = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(static_cast<int>(i), shape, &tensor));
      char* at = static_cast<char*>(tensor->data());
      for (const FelaTensors& chunk : chunks) {
        if (chunk[i].size() > 0) {
          std::memcpy(at, chunk[i].data(), chunk[i].size());
          at += chunk[i].size();
        }
      }
    }
    return absl::OkStatus();
  }

  // By chunk; all of its tensors have as many.
  absl::Status CountRows(OpKernelContext* context, const std::vector<FelaTensors>& chunks,
                         std::vector<int64_t>* counts) const {
    for (size_t k = 0; k < chunks.size(); ++k) {
      bool fits = chunks[k].size() == types_.size();
      std::string has, asked;
      for (size_t i = 0; i < chunks[k].size(); ++i) {
        has += (i == 0 ? "" : ", ") + std::to_string(chunks[k][i].size());
      }
      for (size_t i = 0; i < types_.size(); ++i) {
        asked += (i == 0 ? "" : ", ") + std::to_string(RowBytes(i));
        fits = fits && chunks[k][i].size() % RowBytes(i) == 0 &&
               chunks[k][i].size() / RowBytes(i) == chunks[k][0].size() / RowBytes(0);
      }
      if (!fits) {
        const FelaNames names(context->input(0), FelaNames::kWithHolder);
        return FelaMisuse(names.Name(static_cast<int64_t>(k)).ToString() + " has tensors of " +
                          has + " bytes, which are not as many rows each of " + asked +
                          " bytes: take it with the dtypes and shapes that it was put with");
      }
      counts->push_back(static_cast<int64_t>(chunks[k][0].size() / RowBytes(0)));
    }
    return absl::OkStatus();
  }

  size_t RowBytes(size_t i) const {
    return static_cast<size_t>(rows_[i].num_elements()) *
           static_cast<size_t>(tensorflow::DataTypeSize(types_[i]));
  }

  static bool IsAligned(const Payload& payload) {
    return reinterpret_cast<uintptr_t>(payload.data()) % static_cast<size_t>(Payload::kAlignment) ==
           0;
  }

  int64_t session_ = 0;
  std::vector<DataType> types_;
  std::vector<TensorShape> rows_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakFelaPut").Device(tensorflow::DEVICE_CPU), FelaPutOp);
REGISTER_KERNEL_BUILDER(Name("TrepakFelaTake").Device(tensorflow::DEVICE_CPU), FelaTakeOp);

}  // namespace
}  // namespace trepak
