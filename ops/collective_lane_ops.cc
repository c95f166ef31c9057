// Lanes: an optimizer's gradients through Horovod's collectives, in a training step's background.

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/lane_table.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakStartLane")
    .Attr("lane: string")
    .Attr("me: string")
    .Attr("keys: list(int) >= 1")
    .Attr("piece_bytes: int >= 8")
    .Attr("window_bytes: int >= 8")
    .Attr("urgent_bytes: int >= 0")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Makes variables' gradients travel through Horovod's collectives; see CollectiveLane.

lane: its collectives' names begin with it.
me: how errors name this rank.
keys: of variables that TrepakAddVariable made known, the first layers' first; the same on all
  ranks, as all that follows.
piece_bytes: larger gradients are cut; a multiple of 8.
window_bytes: of the pieces that are under way together.
urgent_bytes: of the first gradients, which travel as soon as they are pushed.
)doc");

REGISTER_OP("TrepakStopLanes")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends all lanes of this process; what waits fails.");

// The library beside this one that drives Horovod's core; Python has loaded it, after Horovod.
Status MakeCalls(std::shared_ptr<CollectiveCalls>* calls) {
  using Make = CollectiveCalls* (*)();
  const auto make = reinterpret_cast<Make>(dlsym(RTLD_DEFAULT, "TrepakHorovodCalls"));
  if (make == nullptr) {
    return NotFoundError("the library that drives Horovod's core is not loaded");
  }
  calls->reset(make());
  return OkStatus();
}

class StartLaneOp : public tensorflow::OpKernel {
 public:
  explicit StartLaneOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lane", &options_.name));
    OP_REQUIRES_OK(context, context->GetAttr("me", &options_.me));
    int64_t piece_bytes = 0;
    int64_t window_bytes = 0;
    int64_t urgent_bytes = 0;
    OP_REQUIRES_OK(context, context->GetAttr("keys", &keys_));
    OP_REQUIRES_OK(context, context->GetAttr("piece_bytes", &piece_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("window_bytes", &window_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("urgent_bytes", &urgent_bytes));
    OP_REQUIRES(context, piece_bytes % 8 == 0,
                absl::InvalidArgumentError("pieces must hold whole numbers of float64"));
    options_.rules.piece_bytes = static_cast<size_t>(piece_bytes);
    options_.rules.window_bytes = static_cast<size_t>(window_bytes);
    options_.rules.urgent_bytes = static_cast<size_t>(urgent_bytes);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    std::shared_ptr<CollectiveCalls> calls;
    OP_REQUIRES_OK(context, ToFlowError(MakeCalls(&calls)));
    std::vector<Variable> variables;
    for (const int64_t key : keys_) {
      const auto found = VariableTable::Global().Find(static_cast<uint32_t>(key));
      OP_REQUIRES(context, found.has_value(),
                  absl::NotFoundError("variable " + std::to_string(key) + " is not known"));
      variables.push_back(*found);
    }
    LaneTable::Global().Add(variables,
                            std::make_shared<CollectiveLane>(options_, variables, calls));
  }

 private:
  CollectiveLane::Options options_;
  std::vector<int64_t> keys_;
};

class StopLanesOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext*) override {
    LaneTable::Global().Clear(CancelledError("Horovod was shut down"));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakStartLane").Device(tensorflow::DEVICE_CPU), StartLaneOp);
REGISTER_KERNEL_BUILDER(Name("TrepakStopLanes").Device(tensorflow::DEVICE_CPU), StopLanesOp);

}  // namespace
}  // namespace trepak
