// The ops that the graph pass puts into a training step.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ops/dymem.h"
#include "ops/dymem_place.h"
#include "ops/dymem_step.h"
#include "ops/dymem_tensor.h"
#include "ops/shared_variant.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;

REGISTER_OP("TrepakStep")
    .Output("step: variant")
    .Attr("turns: int")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc("A step begins: decides whether it stays in memory. turns: how many its layers take.");

REGISTER_OP("TrepakTurn")
    .Input("step: variant")
    .Attr("turn: int")
    .Attr("layer: string")
    .Attr("after: string")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs)
    .Doc("Waits for that turn, unless all fits into the pool. layer, after: who waits for whom.");

REGISTER_OP("TrepakPassTurn")
    .Input("step: variant")
    .Attr("turn: int")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs)
    .Doc("That turn has come.");

REGISTER_OP("TrepakOffload")
    .Input("value: T")
    .Input("step: variant")
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
    .Input("step: variant")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs)
    .Doc("Waits until all copies that have begun are done. When it comes again, a step was whole.");

REGISTER_OP("TrepakEnd")
    .Input("value: T")
    .Output("same: T")
    .Attr("T: type")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnchangedShape)
    .Doc(
        "A result of a function that waits for the rest of Dymem's nodes, which nothing else "
        "needs.");

int IntegerOf(tf::OpKernelConstruction* context, const char* attribute) {
  int turn = 0;
  const absl::Status status = context->GetAttr(attribute, &turn);
  if (!status.ok()) {
    context->CtxFailure(status);
  }
  return turn;
}

// One kernel is one graph.
class StepOp : public tf::OpKernel {
 public:
  explicit StepOp(tf::OpKernelConstruction* context)
      : OpKernel(context), turns_(IntegerOf(context, "turns")) {
    OP_REQUIRES(context, Dymem::Global() != nullptr,
                absl::FailedPreconditionError("trepak: no Dymem here"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const bool is_apart = TensorPlace(context).is_apart();
    OutputShared(
        context, 0,
        std::make_shared<DymemStep>(Dymem::Global(), context->step_id(), gate_, is_apart, turns_));
  }

 private:
  const int turns_;
  const std::shared_ptr<FitGate> gate_ = std::make_shared<FitGate>();  // of this graph
};

class TurnOp : public tf::AsyncOpKernel {
 public:
  explicit TurnOp(tf::OpKernelConstruction* context)
      : AsyncOpKernel(context), turn_(IntegerOf(context, "turn")) {
    std::string layer;
    std::string after;
    OP_REQUIRES_OK(context, context->GetAttr("layer", &layer));
    OP_REQUIRES_OK(context, context->GetAttr("after", &after));
    told_ = "'" + layer + "' waits until '" + after + "' has ended";
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    const auto step = SharedInput<DymemStep>(context, 0);
    if (step == nullptr || step->RunsAhead()) {
      done();
      return;
    }
    // Who passes the turn on does not run if the step fails.
    tf::CancellationManager* const manager = context->cancellation_manager();
    const auto token = manager->get_cancellation_token();
    if (!manager->RegisterCallback(token, [step, turn = turn_] { step->turns().Cancel(turn); })) {
      step->turns().Cancel(turn_);
    }
    step->turns().Wait(
        turn_, [this, context, manager, token, done = std::move(done)](const Status& status) {
          manager->TryDeregisterCallback(token);
          if (!status.ok()) {
            context->SetStatus(
                ToAbslStatus(Status(status.code(), told_ + ": " + std::string(status.message()))));
          }
          done();
        });
  }

 private:
  const int turn_;
  std::string told_;  // who waits for whom
};

class PassTurnOp : public tf::OpKernel {
 public:
  explicit PassTurnOp(tf::OpKernelConstruction* context)
      : OpKernel(context), turn_(IntegerOf(context, "turn")) {}

  void Compute(tf::OpKernelContext* context) override {
    if (const auto step = SharedInput<DymemStep>(context, 0)) {
      step->turns().Pass(turn_);
    }
  }

 private:
  const int turn_;
};

class OffloadOp : public tf::OpKernel {
 public:
  explicit OffloadOp(tf::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("called", &called_));
  }

  void Compute(tf::OpKernelContext* context) override {
    Dymem* const dymem = Dymem::Global();
    if (DymemTrace* const trace = dymem->trace()) {
      trace->recorder().Swapped(context->input(0).tensor_data().data(), called_);
    }
    auto step = SharedInput<DymemStep>(context, 1);
    if (step == nullptr) {
      return;
    }
    step->Note();
    const TensorPlace place(context);
    // What stayed on a device would not leave when a kernel is short of memory, since the device's
    // own allocator asks nobody for relief. A trace tells swaps, and lets them be.
    const bool stays = dymem->options().traces || (step->Stays() && !place.is_apart());
    const auto make = stays ? &SwappedTensor::Keep : &SwappedTensor::Offload;
    OutputShared(context, 0, make(dymem, called_, std::move(step), place, context->input(0)));
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
    swapped->step().Note();
    swapped->Fetch([context, done = std::move(done), waits = Dymem::Global()->waits().Wait()](
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
    if (const auto step = SharedInput<DymemStep>(context, 0)) {
      step->Note();
    }
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

class EndOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override { context->set_output(0, context->input(0)); }
};

// On the processor, and on all other devices.
#define TREPAK_REGISTER_DYMEM(name, variant, Kernel)                  \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tf::DEVICE_CPU), Kernel); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tf::DEVICE_DEFAULT) variant, Kernel)

TREPAK_REGISTER_DYMEM("TrepakStep", .HostMemory("step"), StepOp);
TREPAK_REGISTER_DYMEM("TrepakTurn", .HostMemory("step"), TurnOp);
TREPAK_REGISTER_DYMEM("TrepakPassTurn", .HostMemory("step"), PassTurnOp);
TREPAK_REGISTER_DYMEM("TrepakOffload", .HostMemory("step").HostMemory("swapped"), OffloadOp);
TREPAK_REGISTER_DYMEM("TrepakPrefetch", .HostMemory("swapped"), PrefetchOp);
TREPAK_REGISTER_DYMEM("TrepakFetch", .HostMemory("swapped"), FetchOp);
TREPAK_REGISTER_DYMEM("TrepakSynchronize", .HostMemory("step"), SynchronizeOp);
TREPAK_REGISTER_DYMEM("TrepakEnd", , EndOp);
#undef TREPAK_REGISTER_DYMEM

}  // namespace
}  // namespace trepak
