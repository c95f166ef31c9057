// TrepakStepReady, TrepakStepDone and TrepakStepRecords: when steps compute and synchronize.

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/runtime/net/timer_thread.h"
#include "ops/runtime/observe/step_probe.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

absl::Status NoOutputs(tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); }

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

REGISTER_OP("TrepakStepRecords")
    .Output("steps: int64")
    .Output("nanoseconds: int64")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      context->set_output(1, context->Matrix(context->UnknownDim(), 3));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Takes the records of the steps since the last call.

steps: [n], their numbers.
nanoseconds: [n, 3], begin, ready and done of each, on this machine's steady clock.
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

class StepRecordsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    const std::vector<StepRecord> records = StepProbe::Global().Drain();
    const int64_t count = static_cast<int64_t>(records.size());
    tensorflow::Tensor* steps = nullptr;
    tensorflow::Tensor* times = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {count}, &steps));
    OP_REQUIRES_OK(context, context->allocate_output(1, {count, 3}, &times));
    for (int64_t i = 0; i < count; ++i) {
      steps->vec<int64_t>()(i) = records[i].step;
      times->matrix<int64_t>()(i, 0) = Nanoseconds(records[i].begin);
      times->matrix<int64_t>()(i, 1) = Nanoseconds(records[i].ready);
      times->matrix<int64_t>()(i, 2) = Nanoseconds(records[i].done);
    }
  }

 private:
  static int64_t Nanoseconds(StepRecord::Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakStepReady").Device(tensorflow::DEVICE_CPU), StepReadyOp);
REGISTER_KERNEL_BUILDER(Name("TrepakStepDone").Device(tensorflow::DEVICE_CPU), StepDoneOp);
REGISTER_KERNEL_BUILDER(Name("TrepakStepRecords").Device(tensorflow::DEVICE_CPU), StepRecordsOp);

}  // namespace
}  // namespace trepak
