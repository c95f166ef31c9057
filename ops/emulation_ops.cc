// TrepakEmulatedCompute: passes a tensor on after the time that an accelerator would have taken.

#include <chrono>
#include <string>

#include "ops/runtime/observe/emulated_stream.h"
#include "ops/runtime/observe/injection.h"
#include "ops/runtime/observe/timeline.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakEmulatedCompute")
    .Input("x: T")
    .Input("milliseconds: float")
    .Output("y: T")
    .Attr("T: type")
    .Attr("label: string = ''")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Passes x on after a time, without using the CPU meanwhile.

Stateful, so that it is neither folded into a constant nor merged with others like it, and so that
the pieces of a tf.function run in program order, as a GPU runs what is launched on a stream.

Pieces of one process run one after the other, as on one stream of a GPU.

milliseconds: a scalar; multiplied by the factor by which this rank is slowed.
label: what a timeline calls it; by default the op's name.
)doc");

class EmulatedComputeOp : public tensorflow::AsyncOpKernel {
 public:
  explicit EmulatedComputeOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
    if (label_.empty()) {
      label_ = name();
    }
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const tensorflow::Tensor& milliseconds = context->input(1);
    OP_REQUIRES_ASYNC(
        context, tensorflow::TensorShapeUtils::IsScalar(milliseconds.shape()),
        absl::InvalidArgumentError(absl::StrCat("milliseconds must be a scalar, but its shape is ",
                                                milliseconds.shape().DebugString())),
        done);
    const float wanted = milliseconds.scalar<float>()();
    OP_REQUIRES_ASYNC(context, wanted >= 0 && wanted < kMostMilliseconds,
                      absl::InvalidArgumentError(absl::StrCat(
                          "milliseconds must be at least 0 and under an hour, but is ", wanted)),
                      done);
    context->set_output(0, context->input(0));
    Injection& injection = Injection::Global();
    const std::chrono::duration<double, std::milli> time(wanted * injection.slow());
    // `done` may end the step, and this op with it, before Enqueue returns.
    const std::string label = Timeline::Global().on() ? label_ : "";
    const EmulatedStream::Piece piece = EmulatedStream::Global().Enqueue(
        std::chrono::duration_cast<EmulatedStream::Duration>(time) + injection.TakeDelay(),
        std::move(done));
    Timeline::Global().Span(Timeline::Track::kAccelerator, label, piece.begin, piece.end);
  }

 private:
  static constexpr float kMostMilliseconds = 3600e3F;

  std::string label_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakEmulatedCompute").Device(tensorflow::DEVICE_CPU),
                        EmulatedComputeOp);

}  // namespace
}  // namespace trepak
