// TrepakZipline: where a barrier makes workers wait least.

#include <chrono>
#include <map>
#include <string>

#include "ops/op_helpers.h"
#include "ops/runtime/elastic_bsp/zipline.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakZipline")
    .Input("end_times: float64")
    .Output("waiting_time: float64")
    .Output("barrier_time: float64")
    .Output("iterations: int64")
    .Output("seconds: float64")
    .Attr("algorithm: {'zipline', 'paper', 'grid_scan', 'full_grid_scan', 'naive'}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle ends;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 2, &ends));
      for (const int output : {0, 1, 3}) {
        context->set_output(output, context->Scalar());
      }
      context->set_output(2, context->Vector(context->Dim(ends, 0)));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns where a barrier makes workers wait least.

end_times: [workers, iterations], when they are expected to end.
waiting_time: of who stops first, for who stops last.
barrier_time: when that one stops.
iterations: [workers], how many each of them does.
seconds: that the search took.
)doc");

using Search = Barrier (*)(const EndTimes&);

class ZiplineOp : public tensorflow::OpKernel {
 public:
  explicit ZiplineOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    static const std::map<std::string, Search> searches = {{"zipline", ZipLine},
                                                           {"paper", ZipLineOfPaper},
                                                           {"grid_scan", GridScan},
                                                           {"full_grid_scan", FullGridScan},
                                                           {"naive", NaiveSearch}};
    std::string algorithm;
    OP_REQUIRES_OK(context, context->GetAttr("algorithm", &algorithm));
    search_ = searches.at(algorithm);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES(context, context->input(0).dims() == 2,
                absl::InvalidArgumentError("end times must be [workers, iterations]"));
    const auto matrix = context->input(0).matrix<double>();
    EndTimes ends;
    ends.values = matrix.data();
    ends.workers = static_cast<size_t>(matrix.dimension(0));
    ends.iterations = static_cast<size_t>(matrix.dimension(1));
    OP_REQUIRES_OK(context, ToAbslStatus(CheckEndTimes(ends)));
    const auto begin = std::chrono::steady_clock::now();
    const Barrier barrier = search_(ends);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    OutputScalar(context, 0, barrier.waiting_time);
    OutputScalar(context, 1, barrier.barrier_time);
    OutputVector<int64_t>(context, 2, barrier.iterations);
    OutputScalar(context, 3, took.count());
  }

 private:
  Search search_ = nullptr;
};

REGISTER_KERNEL_BUILDER(Name("TrepakZipline").Device(tensorflow::DEVICE_CPU), ZiplineOp);

}  // namespace
}  // namespace trepak
