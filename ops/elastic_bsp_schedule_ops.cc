// What ElasticBSP has recorded, and what it would do: a simulation.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/elastic_bsp_ops.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_simulation.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

constexpr int kScheduled = 9;  // numbers in ElasticBspScheduler::Counters

REGISTER_OP("TrepakElasticBspRecorded")
    .Output("recorded: float64")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Matrix(context->UnknownDim(), 4));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Says when steps ended, on the rank that plans; else nothing. [steps, 4], of each: rank, end,
computing, communication.
)doc");

REGISTER_OP("TrepakElasticBspSimulate")
    .Input("intervals: float64")
    .Input("until: float64")
    .Input("after_barrier: float64")
    .Input("begin: float64")
    .Output("seconds: float64")
    .Output("waiting: float64")
    .Output("taken: int64")
    .Output("counters: float64")
    .Output("recorded: float64")
    .Attr("options: string")
    .Attr("steps: int >= 1")
    .Attr("pauses: list(int) = []")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle intervals;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 2, &intervals));
      context->set_output(0, context->Scalar());
      context->set_output(1, context->Vector(context->Dim(intervals, 0)));
      context->set_output(2, context->Vector(context->Dim(intervals, 0)));
      context->set_output(3, context->Vector(kScheduled));
      context->set_output(4, context->Matrix(context->UnknownDim(), 3));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Runs the scheduler on recorded times until all workers together have taken so many steps; they pause
after the numbers of steps in `pauses`, see Simulate.

options: how far they may go, as JSON.

intervals: [workers, steps], how long a worker's steps take, one after another and then again.
until: [workers, steps], when the next interval's speed takes over, see Intervals; or nothing.
after_barrier: [workers], how many times as long the first step after a barrier takes; or nothing.
begin: scalar, seconds of that record that are over.
waiting: [workers], seconds.
taken: [workers], steps.
counters: see ElasticBspScheduler::Counters, in its order.
recorded: [steps, 3], in the order of their ends, of each: rank, begin, end.
)doc");

// What a schedule has come to, as an op's output; see ElasticBspScheduler::Counters.
void OutputSchedule(tensorflow::OpKernelContext* context, int output,
                    const ElasticBspScheduler::Counters& c) {
  const auto count = [](uint64_t number) { return static_cast<double>(number); };
  OutputVector<double>(
      context, output,
      std::array<double, kScheduled>{count(c.barriers), count(c.steps), c.waiting, c.longest_waits,
                                     c.predicted_waits, count(c.predictions), c.error,
                                     count(c.taken_out), c.planning});
}

// Outputs a row for each item, [items, kColumns]; `row_of` returns it as an array.
template <size_t kColumns, typename Item, typename RowOf>
void OutputRows(tensorflow::OpKernelContext* context, int output, const std::vector<Item>& items,
                const RowOf& row_of) {
  tensorflow::Tensor* made = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(
                              output, {static_cast<int64_t>(items.size()), kColumns}, &made));
  double* to = made->flat<double>().data();
  for (const Item& item : items) {
    const std::array<double, kColumns> row = row_of(item);
    to = std::copy(row.begin(), row.end(), to);
  }
}

class ElasticBspRecordedOp : public ElasticBspOp {
 public:
  using ElasticBspOp::ElasticBspOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<ElasticBspCoordinator> coordinator =
        Find<ElasticBspCoordinator>(kCoordinatorPart);
    const std::vector<ElasticBspScheduler::Step> steps =
        coordinator == nullptr ? std::vector<ElasticBspScheduler::Step>{} : coordinator->recorded();
    OutputRows<4>(context, 0, steps, [](const ElasticBspScheduler::Step& step) {
      return std::array<double, 4>{static_cast<double>(step.worker), step.end, step.computing,
                                   step.communication};
    });
  }
};

class ElasticBspSimulateOp : public tensorflow::OpKernel {
 public:
  explicit ElasticBspSimulateOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    std::string options;
    OP_REQUIRES_OK(context, context->GetAttr("options", &options));
    OP_REQUIRES_OK(context, ToOptionsError(WithoutThrowing("elastic_bsp", [&] {
                     rules_ = RulesFrom(Json::parse(options));
                     return OkStatus();
                   })));
    OP_REQUIRES_OK(context, context->GetAttr("steps", &steps_));
    std::vector<int64_t> pauses;
    OP_REQUIRES_OK(context, context->GetAttr("pauses", &pauses));
    pauses_.assign(pauses.begin(), pauses.end());
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES(context, context->input(0).dims() == 2,
                absl::InvalidArgumentError("intervals must be [workers, steps]"));
    const auto matrix = context->input(0).matrix<double>();
    const auto workers = static_cast<size_t>(matrix.dimension(0));
    const auto recorded = static_cast<size_t>(matrix.dimension(1));
    OP_REQUIRES(context, workers > 0 && recorded > 0,
                absl::InvalidArgumentError("there must be a step of each worker"));
    const tensorflow::Tensor& until = context->input(1);
    OP_REQUIRES(context, until.NumElements() == 0 || until.shape() == context->input(0).shape(),
                absl::InvalidArgumentError("there must be a time for each step, or none"));
    const tensorflow::Tensor& longer = context->input(2);
    OP_REQUIRES(context, longer.NumElements() == 0 || longer.NumElements() == matrix.dimension(0),
                absl::InvalidArgumentError("there must be a factor for each worker, or none"));
    const tensorflow::Tensor& begin = context->input(3);
    OP_REQUIRES(context, begin.dims() == 0, absl::InvalidArgumentError("begin must be a scalar"));
    const auto given = [](const tensorflow::Tensor& values) {
      return values.NumElements() == 0 ? nullptr : values.flat<double>().data();
    };
    ElasticBspScheduler::Rules rules = rules_;
    rules.workers = static_cast<uint32_t>(workers);
    const Intervals intervals{matrix.data(), given(until),  workers,
                              recorded,      given(longer), begin.scalar<double>()()};
    const Simulated simulated = Simulate(rules, intervals, static_cast<uint64_t>(steps_), pauses_);
    OutputScalar(context, 0, simulated.seconds);
    OutputVector<double>(context, 1, simulated.waiting);
    OutputVector<int64_t>(context, 2, simulated.taken);
    OutputSchedule(context, 3, simulated.counters);
    OutputRows<3>(context, 4, simulated.steps, [](const Simulated::Step& step) {
      return std::array<double, 3>{static_cast<double>(step.worker), step.begin, step.end};
    });
  }

 private:
  ElasticBspScheduler::Rules rules_;
  int64_t steps_ = 0;
  std::vector<uint64_t> pauses_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspRecorded").Device(tensorflow::DEVICE_CPU),
                        ElasticBspRecordedOp);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspSimulate").Device(tensorflow::DEVICE_CPU),
                        ElasticBspSimulateOp);

}  // namespace
}  // namespace trepak
