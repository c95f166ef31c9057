// TrepakConfigureInjection: says what shall make this process slower than others.

#include <cstdint>
#include <utility>

#include "ops/runtime/observe/injection.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakConfigureInjection")
    .Input("kinds: int32")
    .Input("numbers: float64")
    .Attr("slow: float")
    .Attr("seed: int")
    .Attr("rank: int")
    .Attr("size: int")
    .Attr("kill_step: int")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc(R"doc(
Says what shall make this process slower than others, from its next step on.

kinds: [n], of each delay: 0 uniform, 1 round-robin, 2 probability.
numbers: [n, 3], of each delay: the lower and the higher bound in seconds, the probability.
slow: computing takes this many times as long.
kill_step: the step at whose end the process gets SIGKILL; -1 for none.
)doc");

class ConfigureInjectionOp : public tensorflow::OpKernel {
 public:
  explicit ConfigureInjectionOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    float slow = 1;
    int64_t seed = 0;
    OP_REQUIRES_OK(context, context->GetAttr("slow", &slow));
    OP_REQUIRES_OK(context, context->GetAttr("seed", &seed));
    OP_REQUIRES_OK(context, context->GetAttr("rank", &options_.rank));
    OP_REQUIRES_OK(context, context->GetAttr("size", &options_.size));
    OP_REQUIRES_OK(context, context->GetAttr("kill_step", &options_.kill_step));
    options_.slow = slow;
    options_.seed = static_cast<uint64_t>(seed);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const auto kinds = context->input(0).vec<int32_t>();
    const auto numbers = context->input(1).matrix<double>();
    InjectionOptions options = options_;
    for (int64_t i = 0; i < kinds.size(); ++i) {
      options.delays.push_back(
          {static_cast<DelayRule::Kind>(kinds(i)), numbers(i, 0), numbers(i, 1), numbers(i, 2)});
    }
    Injection::Global().Configure(std::move(options));
  }

 private:
  InjectionOptions options_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakConfigureInjection").Device(tensorflow::DEVICE_CPU),
                        ConfigureInjectionOp);

}  // namespace
}  // namespace trepak
