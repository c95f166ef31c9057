// TrepakTimelineOpen, TrepakTimelineSpan, TrepakTimelineClose: this process's timeline.

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "ops/runtime/observe/injection.h"
#include "ops/runtime/observe/timeline.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

absl::Status NoOutputs(tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); }

REGISTER_OP("TrepakTimelineOpen")
    .Attr("path: string")
    .Attr("rank: int")
    .Attr("title: string")
    .Attr("about: string")
    .Attr("first_step: int")
    .Attr("end_step: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Begins to write a timeline; a negative end_step stands for the end of the training.");

REGISTER_OP("TrepakTimelineSpan")
    .Input("nanoseconds: int64")
    .Attr("label: string")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Adds a span of the program; nanoseconds: [2], begin and end on the steady clock.");

REGISTER_OP("TrepakTimelineClose").SetIsStateful().SetShapeFn(NoOutputs).Doc("Ends the timeline.");

class TimelineOpenOp : public tensorflow::OpKernel {
 public:
  explicit TimelineOpenOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("path", &path_));
    OP_REQUIRES_OK(context, context->GetAttr("rank", &rank_));
    OP_REQUIRES_OK(context, context->GetAttr("title", &title_));
    OP_REQUIRES_OK(context, context->GetAttr("about", &about_));
    OP_REQUIRES_OK(context, context->GetAttr("first_step", &first_step_));
    OP_REQUIRES_OK(context, context->GetAttr("end_step", &end_step_));
    if (end_step_ < 0) {
      end_step_ = kNoEnd;
    }
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    // A window counts from here on, not from the process's first step.
    const int64_t now = Injection::Global().step();
    const int64_t end = end_step_ > kNoEnd - now ? kNoEnd : now + end_step_;
    OP_REQUIRES_OK(context, ToAbslStatus(Timeline::Global().Open(path_, rank_, title_, about_, now,
                                                                 now + first_step_, end)));
  }

 private:
  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  std::string path_;
  int rank_ = 0;
  std::string title_;
  std::string about_;
  int64_t first_step_ = 0;
  int64_t end_step_ = 0;
};

class TimelineSpanOp : public tensorflow::OpKernel {
 public:
  explicit TimelineSpanOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const auto times = context->input(0).vec<int64_t>();
    Timeline::Global().Span(Timeline::Track::kProgram, label_, Time(times(0)), Time(times(1)));
  }

 private:
  static Timeline::Clock::time_point Time(int64_t nanoseconds) {
    return Timeline::Clock::time_point(std::chrono::nanoseconds(nanoseconds));
  }

  std::string label_;
};

class TimelineCloseOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, ToAbslStatus(Timeline::Global().Close()));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakTimelineOpen").Device(tensorflow::DEVICE_CPU), TimelineOpenOp);
REGISTER_KERNEL_BUILDER(Name("TrepakTimelineSpan").Device(tensorflow::DEVICE_CPU), TimelineSpanOp);
REGISTER_KERNEL_BUILDER(Name("TrepakTimelineClose").Device(tensorflow::DEVICE_CPU),
                        TimelineCloseOp);

}  // namespace
}  // namespace trepak
