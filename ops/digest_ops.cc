// TrepakDigests: digests of the bytes of many tensors or variables at once.

#include <cstdint>

// The header holds the whole of it, so that nothing has to be there when a job runs.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakDigests")
    .Input("values: T")
    .Output("digests: uint64")
    .Attr("T: list(type) >= 1")
    .SetIsStateful()  // variables change between two calls
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->num_inputs()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns XXH3's 64 bits of each value's bytes, the same on every machine of one byte order.

values: tensors of plain numbers, and handles of variables, which are read in place.
digests: aligned with values.
)doc");

class DigestsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* digests = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {context->num_inputs()}, &digests));
    for (int i = 0; i < context->num_inputs(); ++i) {
      tensorflow::Tensor value;
      OP_REQUIRES_OK(context, Read(context, i, &value));
      OP_REQUIRES(context, tensorflow::DataTypeCanUseMemcpy(value.dtype()),
                  absl::InvalidArgumentError(absl::StrCat(
                      "value ", i, " is of ", tensorflow::DataTypeString(value.dtype()),
                      ", which has no bytes of its own to digest")));
      const auto bytes = value.tensor_data();
      digests->flat<uint64_t>()(i) = XXH3_64bits(bytes.data(), bytes.size());
    }
  }

 private:
  // Takes a reference: whoever writes to a variable that others refer to makes a copy of it first.
  static absl::Status Read(tensorflow::OpKernelContext* context, int i, tensorflow::Tensor* value) {
    if (context->input_dtype(i) != tensorflow::DT_RESOURCE) {
      *value = context->input(i);
      return absl::OkStatus();
    }
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    TF_RETURN_IF_ERROR(
        tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, i), &variable));
    tensorflow::tf_shared_lock lock(*variable->mu());
    *value = *variable->tensor();
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakDigests").Device(tensorflow::DEVICE_CPU), DigestsOp);

}  // namespace
}  // namespace trepak
