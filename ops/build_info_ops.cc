// TrepakBuildInfo: says what this library was built from and how.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/build_info.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakBuildInfo")
    .Output("keys: string")
    .Output("values: string")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      const auto vector = context->Vector(context->UnknownDim());
      context->set_output(0, vector);
      context->set_output(1, vector);
      return absl::OkStatus();
    })
    .Doc(R"doc(
What trepak's native library was built from and how.

keys: names of the facts, e.g. "version", "tensorflow", "compiler".
values: the facts, aligned with keys.
)doc");

class BuildInfoOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    const BuildInfo& info = GetBuildInfo();
    const std::vector<std::pair<std::string, std::string>> facts = {
        {"version", info.version},       {"tensorflow", TREPAK_TENSORFLOW_VERSION},
        {"compiler", info.compiler},     {"cxx_standard", info.cxx_standard},
        {"build_type", info.build_type},
    };
    const tensorflow::TensorShape shape({static_cast<int64_t>(facts.size())});
    tensorflow::Tensor* keys = nullptr;
    tensorflow::Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &keys));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &values));
    for (size_t i = 0; i < facts.size(); ++i) {
      keys->flat<tensorflow::tstring>()(static_cast<int64_t>(i)) = facts[i].first;
      values->flat<tensorflow::tstring>()(static_cast<int64_t>(i)) = facts[i].second;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakBuildInfo").Device(tensorflow::DEVICE_CPU), BuildInfoOp);

}  // namespace
}  // namespace trepak
