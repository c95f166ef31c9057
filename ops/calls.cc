// TrepakCall: calls a function by name.

#include "ops/calls.h"

#include "ops/op_helpers.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/denormal.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakCall")
    .Input("function: string")
    .Input("arguments: string")
    .Output("result: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Calls a function of the native library.

function: its name.
arguments: by name, as JSON; an input, as errors show attributes, and these may be secrets.
result: as JSON.
)doc");

// Not changed after start-up.
std::map<std::string, Function>& Functions() {
  static auto* const functions = new std::map<std::string, Function>;
  return *functions;
}

class CallOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    for (int i = 0; i < context->num_inputs(); ++i) {
      OP_REQUIRES(
          context, tensorflow::TensorShapeUtils::IsScalar(context->input(i).shape()),
          absl::InvalidArgumentError("trepak: a function's name and arguments are scalars"));
    }
    const std::string function = context->input(0).scalar<tensorflow::tstring>()();
    const std::string text = context->input(1).scalar<tensorflow::tstring>()();
    const auto found = Functions().find(function);
    OP_REQUIRES(context, found != Functions().end(),
                absl::NotFoundError("trepak: there is no function " + function));
    // Numbers arrive as they were sent, not rounded to zero as those of other ops.
    const tensorflow::port::ScopedDontFlushDenormal exact;
    Json result;
    OP_REQUIRES_OK(context, WithoutThrowing("the arguments of " + function, [&] {
                     Json arguments = Json::parse(text, nullptr, /*allow_exceptions=*/false);
                     return arguments.is_object()
                                ? found->second(Arguments(std::move(arguments)), &result)
                                : absl::InvalidArgumentError("trepak: the arguments of " +
                                                             function + " are no JSON object");
                   }));
    const std::string made = result.dump(-1, ' ', false, Json::error_handler_t::replace);
    OutputScalar(context, 0, tensorflow::tstring(made));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakCall").Device(tensorflow::DEVICE_CPU), CallOp);

}  // namespace

bool RegisterCalls(const std::map<std::string, Function>& functions) {
  Functions().insert(functions.begin(), functions.end());
  return true;
}

}  // namespace trepak
