// An alltoall in two ops: one sends and goes on, the other waits for what the ranks have sent.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/payload_tensor.h"
#include "ops/runtime/sven/alltoall_peer.h"
#include "ops/session_ops.h"
#include "ops/shared_variant.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TrepakAlltoallRequest")
    .Input("values: T")
    .Input("splits: int64")
    .Output("ticket: variant")
    .Attr("session: int")
    .Attr("label: string")
    .Attr("T: {int32, int64, bfloat16, float, double}")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Sends each rank its rows; waits for nobody.

values: what to send: the rows of rank 0, then those of rank 1, and so on.
splits: by rank, how many rows.
ticket: for TrepakAlltoallWait; whoever drops it says that nobody waits.
label: which exchanges these are; matched between ranks by it, and by their number.
)doc");

REGISTER_OP("TrepakAlltoallWait")
    .Input("ticket: variant")
    .Output("values: T")
    .Output("received_splits: int64")
    .Attr("session: int")
    .Attr("label: string")
    .Attr("T: {int32, int64, bfloat16, float, double}")
    .Attr("row_shape: shape")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::PartialTensorShape row;
      TF_RETURN_IF_ERROR(context->GetAttr("row_shape", &row));
      tensorflow::PartialTensorShape rows({-1});
      tensorflow::shape_inference::ShapeHandle shape;
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(rows.Concatenate(row), &shape));
      context->set_output(0, shape);
      context->set_output(1, context->UnknownShapeOfRank(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Waits until the rows of all ranks are in.

It is a function of its ticket, hence not stateful: TensorFlow orders it behind its request only.

values: the rows of rank 0, then those of rank 1, and so on.
received_splits: by rank, how many rows.
session, label: the request's; the gradient is an alltoall of the same session.
)doc");

ElementType TypeOf(tensorflow::DataType type) {
  switch (type) {
    case tensorflow::DT_INT32:
      return ElementType::kInt32;
    case tensorflow::DT_INT64:
      return ElementType::kInt64;
    case tensorflow::DT_BFLOAT16:
      return ElementType::kBfloat16;
    default:
      return ElementTypeOf(type);
  }
}

// A ticket, with the shape of the rows: those of the others are alike.
struct Ticket {
  static constexpr const char* kName = "ticket of an alltoall";

  Ticket(std::shared_ptr<AlltoallPeer> peer, const AlltoallInbox::Id& id, TensorShape row_)
      : ticket(std::move(peer), id), row(std::move(row_)) {}

  AlltoallTicket ticket;
  const TensorShape row;
};

class AlltoallRequestOp : public SessionOp<AlltoallPeer> {
 public:
  explicit AlltoallRequestOp(tensorflow::OpKernelConstruction* context) : SessionOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("label", &name_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<AlltoallPeer> peer = FindOrFail(context);
    if (peer == nullptr) {
      return;
    }
    const Tensor& values = context->input(0);
    const Tensor& splits = context->input(1);
    OP_REQUIRES_OK(context, Check(values, splits));
    TensorShape row = values.shape();
    row.RemoveDim(0);
    const size_t row_bytes =
        static_cast<size_t>(row.num_elements()) * tensorflow::DataTypeSize(values.dtype());
    // A reference to the values, which keeps their memory and keeps others from writing to it.
    const auto owner = std::make_shared<Tensor>(values);
    char* at = static_cast<char*>(owner->data());
    std::vector<Payload> payloads;
    for (int64_t i = 0; i < splits.NumElements(); ++i) {
      const size_t bytes = static_cast<size_t>(splits.flat<int64_t>()(i)) * row_bytes;
      payloads.emplace_back(at, bytes, owner);
      at += bytes;
    }
    AlltoallInbox::Id id;
    const AlltoallRows rows{TypeOf(values.dtype()), static_cast<uint32_t>(row.num_elements())};
    OP_REQUIRES_OK(context, ToFlowError(peer->Scatter(name_, rows, std::move(payloads), &id)));
    OutputShared(context, 0, std::make_shared<Ticket>(peer, id, row));
  }

 private:
  absl::Status Check(const Tensor& values, const Tensor& splits) const {
    const auto wrong = [this](const std::string& what) {
      return absl::InvalidArgumentError("trepak: the alltoall \"" + name_ + "\" " + what);
    };
    if (values.dims() < 1 || splits.dims() != 1) {
      return wrong("takes values of one dimension or more, and one split for each rank");
    }
    const auto counts = splits.vec<int64_t>();
    int64_t rows = 0;
    for (int64_t i = 0; i < counts.size(); ++i) {
      if (counts(i) < 0 || counts(i) > values.dim_size(0) - rows) {
        return wrong("has " + std::to_string(values.dim_size(0)) + " rows, but split " +
                     std::to_string(i) + " is " + std::to_string(counts(i)) + " behind " +
                     std::to_string(rows) + " rows");
      }
      rows += counts(i);
    }
    return rows == values.dim_size(0) ? absl::OkStatus()
                                      : wrong("has " + std::to_string(values.dim_size(0)) +
                                              " rows, but the splits have " + std::to_string(rows));
  }

  std::string name_;
};

class AlltoallWaitOp : public tensorflow::AsyncOpKernel {
 public:
  explicit AlltoallWaitOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("T", &type_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<Ticket> ticket = SharedInput<Ticket>(context, 0);
    if (ticket == nullptr) {
      done();
      return;
    }
    ticket->ticket.Gather([this, context, ticket, done = std::move(done)](
                              const Status& status, std::vector<Payload> splits) {
      const size_t bytes =
          std::accumulate(splits.begin(), splits.end(), size_t{0},
                          [](size_t sum, const Payload& split) { return sum + split.size(); });
      auto end = [this, context, ticket, done, status, splits = std::move(splits)] {
        const bool is_misused = status.code() == StatusCode::kFailedPrecondition;
        context->SetStatus(status.ok()  ? Output(context, ticket->row, splits)
                           : is_misused ? ToAbslStatus(status)
                                        : ToFlowError(status));
        done();
      };
      if (bytes < kCopiedAtOnce) {
        end();
        return;
      }
      context->device()->tensorflow_cpu_worker_threads()->workers->Schedule(std::move(end));
    });
  }

 private:
  // Less than this is copied in the flows' thread, more in one of TensorFlow's: meanwhile others'
  // messages come in.
  static constexpr size_t kCopiedAtOnce = 64 << 10;

  absl::Status Output(tensorflow::OpKernelContext* context, const TensorShape& row,
                      const std::vector<Payload>& splits) const {
    const size_t row_bytes = std::max<size_t>(
        1, static_cast<size_t>(row.num_elements()) * tensorflow::DataTypeSize(type_));
    Tensor* received = nullptr;
    TF_RETURN_IF_ERROR(
        context->allocate_output(1, {static_cast<int64_t>(splits.size())}, &received));
    int64_t rows = 0;
    for (size_t rank = 0; rank < splits.size(); ++rank) {
      if (splits[rank].size() % row_bytes != 0) {
        return absl::InvalidArgumentError("trepak: rank " + std::to_string(rank) +
                                          " sent a part of a row in an alltoall");
      }
      received->vec<int64_t>()(static_cast<int64_t>(rank)) =
          static_cast<int64_t>(splits[rank].size() / row_bytes);
      rows += received->vec<int64_t>()(static_cast<int64_t>(rank));
    }
    TensorShape shape({rows});
    shape.AppendShape(row);
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &values));
    char* at = static_cast<char*>(values->data());
    for (const Payload& split : splits) {
      at = std::copy_n(static_cast<const char*>(split.data()), split.size(), at);
    }
    return absl::OkStatus();
  }

  tensorflow::DataType type_ = tensorflow::DT_FLOAT;
};

REGISTER_KERNEL_BUILDER(Name("TrepakAlltoallRequest").Device(tensorflow::DEVICE_CPU),
                        AlltoallRequestOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAlltoallWait").Device(tensorflow::DEVICE_CPU), AlltoallWaitOp);

}  // namespace
}  // namespace trepak
