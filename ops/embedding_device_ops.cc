// The fast tier of embeddings in the memory of a TensorFlow device.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/embedding_stores.h"
#include "ops/op_helpers.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/public/version.h"

namespace trepak {
namespace {

using tensorflow::DeviceContext;
using tensorflow::NodeDefBuilder;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("TrepakEmbeddingDevice")
    .Output("number: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Returns a number for the device that it runs on, which `open_embeddings` takes.");

Status ToStatus(const absl::Status& status) {
  if (status.ok()) {
    return OkStatus();
  }
  const std::string message(status.message());
  return absl::IsResourceExhausted(status) ? ResourceExhaustedError(message)
                                           : InternalError(message);
}

// Runs TensorFlow's own kernels: rows are gathered on the device, so that they pass to memory in
// one piece, and scattered there.
//
// Does not own the device, which lives as long as TensorFlow's context. Thread safety: an
// EmbeddingDevice's.
class TensorFlowDevice : public EmbeddingDevice {
 public:
  explicit TensorFlowDevice(tensorflow::Device* device)
      : device_(device),
        context_(device->tensorflow_accelerator_device_info() == nullptr
                     ? nullptr
                     : device->tensorflow_accelerator_device_info()->default_context) {}

  // Fails if TensorFlow has none for the device.
  absl::Status MakeKernels() {
    TF_RETURN_IF_ERROR(MakeKernel(NodeDefBuilder("trepak_gather", "GatherV2")
                                      .Input("rows", 0, tensorflow::DT_FLOAT)
                                      .Input("slots", 0, tensorflow::DT_INT32)
                                      .Input("axis", 0, tensorflow::DT_INT32),
                                  &gather_));
    return MakeKernel(NodeDefBuilder("trepak_scatter", "InplaceUpdate")
                          .Input("rows", 0, tensorflow::DT_FLOAT)
                          .Input("slots", 0, tensorflow::DT_INT32)
                          .Input("values", 0, tensorflow::DT_FLOAT),
                      &scatter_);
  }

  Status Take(size_t numbers) override {
    return ToStatus(OnDevice(tensorflow::DT_FLOAT, {static_cast<int64_t>(numbers)}, &memory_));
  }

  Status Read(const Part& part, Span<int32_t> slots, float* rows) override {
    return slots.size == 0 ? OkStatus() : ToStatus(Gather(part, slots, rows));
  }

  Status Write(const Part& part, Span<int32_t> slots, const float* rows) override {
    return slots.size == 0 ? OkStatus() : ToStatus(Scatter(part, slots, rows));
  }

 private:
  absl::Status MakeKernel(NodeDefBuilder& builder, std::unique_ptr<OpKernel>* kernel) const {
    tensorflow::NodeDef node;
    TF_RETURN_IF_ERROR(builder.Finalize(&node));
    absl::Status status;
    *kernel =
        tensorflow::CreateOpKernel(tensorflow::DeviceType(device_->device_type()), device_,
                                   device_->GetAllocator({}), node, TF_GRAPH_DEF_VERSION, &status);
    return status;
  }

  absl::Status Gather(const Part& part, Span<int32_t> slots, float* rows) const {
    std::vector<Tensor> inputs = {Rows(part), Tensor(), Tensor(0)};
    TF_RETURN_IF_ERROR(NumbersOf(slots, &inputs[1]));
    Tensor found;
    TF_RETURN_IF_ERROR(Run(gather_.get(), inputs, &found));
    Tensor copied = found;
    if (context_ != nullptr) {
      TF_RETURN_IF_ERROR(OnHost(tensorflow::DT_FLOAT, found.shape(), &copied));
      TF_RETURN_IF_ERROR(context_->CopyDeviceTensorToCPUSync(&found, "rows", device_, &copied));
    }
    std::memcpy(rows, copied.data(), copied.TotalBytes());
    return absl::OkStatus();
  }

  absl::Status Scatter(const Part& part, Span<int32_t> slots, const float* rows) const {
    const auto count = static_cast<int64_t>(slots.size);
    Tensor values;
    TF_RETURN_IF_ERROR(
        OnHost(tensorflow::DT_FLOAT, {count, static_cast<int64_t>(part.record)}, &values));
    std::memcpy(values.data(), rows, values.TotalBytes());
    std::vector<Tensor> inputs = {Rows(part), Tensor(), Tensor()};
    TF_RETURN_IF_ERROR(NumbersOf(slots, &inputs[1]));
    TF_RETURN_IF_ERROR(ToDevice(std::move(values), &inputs[2]));
    Tensor same;
    return Run(scatter_.get(), inputs, &same);
  }

  // A view.
  Tensor Rows(const Part& part) const {
    const auto begin = static_cast<int64_t>(part.begin);
    const auto slots = static_cast<int64_t>(part.slots);
    const auto record = static_cast<int64_t>(part.record);
    Tensor rows;
    (void)rows.CopyFrom(memory_.Slice(begin, begin + slots * record), {slots, record});
    return rows;
  }

  // On the device.
  absl::Status NumbersOf(Span<int32_t> slots, Tensor* numbers) const {
    Tensor copied;
    TF_RETURN_IF_ERROR(OnHost(tensorflow::DT_INT32, {static_cast<int64_t>(slots.size)}, &copied));
    std::memcpy(copied.data(), slots.data, copied.TotalBytes());
    return ToDevice(std::move(copied), numbers);
  }

  // In memory that the device can copy from by itself.
  absl::Status OnHost(tensorflow::DataType type, const tensorflow::TensorShape& shape,
                      Tensor* made) const {
    tensorflow::AllocatorAttributes host;
    host.set_on_host(true);
    host.set_gpu_compatible(true);
    return Allocate(host, type, shape, made);
  }

  absl::Status OnDevice(tensorflow::DataType type, const tensorflow::TensorShape& shape,
                        Tensor* made) const {
    return Allocate({}, type, shape, made);
  }

  absl::Status Allocate(tensorflow::AllocatorAttributes where, tensorflow::DataType type,
                        const tensorflow::TensorShape& shape, Tensor* made) const {
    *made = Tensor(device_->GetAllocator(where), type, shape);
    return made->IsInitialized()
               ? absl::OkStatus()
               : absl::ResourceExhaustedError(
                     device_->name() + " has no " + std::to_string(made->TotalBytes()) +
                     " bytes for embeddings" + (where.on_host() ? " in host memory" : "") +
                     "; let go of other layers, or use more ranks or less fast_bytes=");
  }

  absl::Status ToDevice(Tensor from, Tensor* to) const {
    if (context_ == nullptr) {
      *to = std::move(from);
      return absl::OkStatus();
    }
    TF_RETURN_IF_ERROR(OnDevice(from.dtype(), from.shape(), to));
    return context_->CopyCPUTensorToDeviceSync(&from, device_, to);
  }

  // An accelerator's kernel has been begun then; copies wait for it.
  absl::Status Run(OpKernel* kernel, const std::vector<Tensor>& inputs, Tensor* output) const {
    std::vector<tensorflow::TensorValue> values;
    for (const Tensor& input : inputs) {
      values.emplace_back(const_cast<Tensor*>(&input));
    }
    const std::vector<tensorflow::AllocatorAttributes> of_inputs(inputs.size());
    const tensorflow::AllocatorAttributes of_output;
    // With kNeverForward a scatter, whose output is its input, would copy all rows.
    const int forward_from = OpKernelContext::Params::kNoReservation;
    OpKernelContext::Params params;
    params.device = device_;
    params.op_device_context = context_;
    params.op_kernel = kernel;
    params.resource_manager = device_->resource_manager();
    params.inputs = values;
    params.input_alloc_attrs = of_inputs;
    params.output_attr_array = &of_output;
    params.forward_from_array = &forward_from;
    OpKernelContext context(&params, 1);
    device_->Compute(kernel, &context);
    TF_RETURN_IF_ERROR(context.status());
    *output = *context.mutable_output(0);
    return absl::OkStatus();
  }

  tensorflow::Device* const device_;
  DeviceContext* const context_;  // the device's; null: the processor addresses it
  std::unique_ptr<OpKernel> gather_;
  std::unique_ptr<OpKernel> scatter_;
  Tensor memory_;
};

class EmbeddingDeviceOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    // Outside of functions, where Python runs this op, it is the device itself.
    const auto device =
        std::make_shared<TensorFlowDevice>(static_cast<tensorflow::Device*>(context->device()));
    const absl::Status made = device->MakeKernels();
    OP_REQUIRES(context, made.ok(),
                absl::UnimplementedError("trepak: " + context->device()->name() +
                                         " can't have rows of embeddings: TensorFlow lacks kernels "
                                         "for it; leave out device=. " +
                                         std::string(made.message())));
    OutputScalar<int64_t>(context, 0, EmbeddingDevices::Global().Add(device));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmbeddingDevice").Device(tensorflow::DEVICE_CPU),
                        EmbeddingDeviceOp);
// Of all other devices.
REGISTER_KERNEL_BUILDER(
    Name("TrepakEmbeddingDevice").Device(tensorflow::DEVICE_DEFAULT).HostMemory("number"),
    EmbeddingDeviceOp);

}  // namespace
}  // namespace trepak
