// The ops that the graph pass puts into a training step.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ops/dymem.h"
#include "ops/dymem_place.h"
#include "ops/dymem_tensor.h"
#include "ops/shared_variant.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;

REGISTER_OP("TrepakOffload")
    .Input("value: T")
    .Output("swapped: variant")
    .Attr("T: type")
    .Attr("called: string")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc("Copies a tensor out of the pool, beside the computation. called: its name.");

REGISTER_OP("TrepakPrefetch")
    .Input("swapped: variant")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs)
    .Doc("Begins to copy a tensor back, if the pool has room for it now.");

REGISTER_OP("TrepakFetch")
    .Input("swapped: variant")
    .Output("value: T")
    .Attr("T: type")
    .Attr("shape: shape")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ExplicitShape)
    .Doc("Returns the tensor when it is back in the pool.");

REGISTER_OP("TrepakSynchronize")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs)
    .Doc("Waits until all copies that have begun are done. When it comes again, a step was whole.");

class OffloadOp : public tf::OpKernel {
 public:
  explicit OffloadOp(tf::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("called", &called_));
  }

  void Compute(tf::OpKernelContext* context) override {
    Dymem* const dymem = Dymem::Global();
    OP_REQUIRES(context, dymem != nullptr, absl::FailedPreconditionError("trepak: no Dymem here"));
    if (DymemTrace* const trace = dymem->trace()) {
      trace->recorder().Swapped(context->input(0).tensor_data().data(), called_);
    }
    const TensorPlace place(context);
    const bool keeps = dymem->Keeps(context->step_id(), place.is_apart());
    const auto make = keeps ? &SwappedTensor::Keep : &SwappedTensor::Offload;
    OutputShared(context, 0, make(dymem, called_, context->step_id(), place, context->input(0)));
  }

 private:
  std::string called_;
};

class PrefetchOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override {
    if (const auto swapped = SharedInput<SwappedTensor>(context, 0)) {
      swapped->Prefetch();
    }
  }
};

class FetchOp : public tf::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    const auto swapped = SharedInput<SwappedTensor>(context, 0);
    if (swapped == nullptr) {
      done();
      return;
    }
    Dymem& dymem = *Dymem::Global();
    dymem.gate().Note(dymem.needed());
    swapped->Fetch([context, done = std::move(done), waits = dymem.waits().Wait()](
                       const absl::Status& status, tf::Tensor value) mutable {
      waits = nullptr;
      if (status.ok()) {
        context->set_output(0, std::move(value));
      } else {
        context->SetStatus(status);
      }
      done();
    });
  }
};

class SynchronizeOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override {
    // The disk of a whole step.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10);
    Dymem& dymem = *Dymem::Global();
    OP_REQUIRES_OK(context, ToAbslStatus(dymem.DoomOf(context->step_id())));
    const SwapEngine& engine = dymem.engine();
    const auto waits = dymem.waits().Wait();
    OP_REQUIRES_OK(context, ToAbslStatus(engine.SynchronizeOffloads(deadline)));
    OP_REQUIRES_OK(context, ToAbslStatus(engine.SynchronizeFetches(deadline)));
    if (++runs_ == 2) {
      dymem.pool().Fit();
    }
  }

 private:
  std::atomic<int64_t> runs_{0};
};

REGISTER_KERNEL_BUILDER(Name("TrepakOffload").Device(tf::DEVICE_CPU), OffloadOp);
REGISTER_KERNEL_BUILDER(Name("TrepakPrefetch").Device(tf::DEVICE_CPU), PrefetchOp);
REGISTER_KERNEL_BUILDER(Name("TrepakFetch").Device(tf::DEVICE_CPU), FetchOp);
REGISTER_KERNEL_BUILDER(Name("TrepakSynchronize").Device(tf::DEVICE_CPU), SynchronizeOp);
// Of all other devices.
REGISTER_KERNEL_BUILDER(Name("TrepakOffload").Device(tf::DEVICE_DEFAULT).HostMemory("swapped"),
                        OffloadOp);
REGISTER_KERNEL_BUILDER(Name("TrepakPrefetch").Device(tf::DEVICE_DEFAULT).HostMemory("swapped"),
                        PrefetchOp);
REGISTER_KERNEL_BUILDER(Name("TrepakFetch").Device(tf::DEVICE_DEFAULT).HostMemory("swapped"),
                        FetchOp);
REGISTER_KERNEL_BUILDER(Name("TrepakSynchronize").Device(tf::DEVICE_DEFAULT), SynchronizeOp);

}  // namespace
}  // namespace trepak
