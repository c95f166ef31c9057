// TrepakStepReady and TrepakStepDone: when steps compute and synchronize.

#include <chrono>
#include <utility>

#include "ops/calls.h"
#include "ops/op_helpers.h"
#include "ops/runtime/net/timer_thread.h"
#include "ops/runtime/observe/step_probe.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakStepReady")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(
        "Says that this step's gradients, its control inputs, are computed; waits as long as this "
        "rank is to be slower than others.");

REGISTER_OP("TrepakStepDone")
    .Attr("at_own_pace: bool = false")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Says that this step's gradients, its control inputs, are reduced.

at_own_pace: they are but handed over; ranks don't end this step together.
)doc");

class StepReadyOp : public tensorflow::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tensorflow::OpKernelContext*, DoneCallback done) override {
    const auto pause = StepProbe::Global().Computed();
    if (pause <= pause.zero()) {
      StepProbe::Global().Ready();
      done();
      return;
    }
    TimerThread::Global().RunAt(TimerThread::Clock::now() + pause, [done = std::move(done)] {
      StepProbe::Global().Ready();
      done();
    });
  }
};

class StepDoneOp : public tensorflow::OpKernel {
 public:
  explicit StepDoneOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("at_own_pace", &at_own_pace_));
  }
  void Compute(tensorflow::OpKernelContext*) override { StepProbe::Global().Done(at_own_pace_); }

 private:
  bool at_own_pace_ = false;
};

// Takes the steps since the last call, of each: number, begin, ready and done, in nanoseconds on
// this machine's steady clock, and whether it was at the rank's own pace.
absl::Status TakeRecords(const Arguments&, Json* records) {
  const auto nanoseconds = [](StepRecord::Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  *records = Json::array();
  for (const StepRecord& record : StepProbe::Global().Drain()) {
    records->push_back({record.step, nanoseconds(record.begin), nanoseconds(record.ready),
                        nanoseconds(record.done), record.at_own_pace});
  }
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"take_step_records", TakeRecords}});

REGISTER_KERNEL_BUILDER(Name("TrepakStepReady").Device(tensorflow::DEVICE_CPU), StepReadyOp);
REGISTER_KERNEL_BUILDER(Name("TrepakStepDone").Device(tensorflow::DEVICE_CPU), StepDoneOp);

}  // namespace
}  // namespace trepak
