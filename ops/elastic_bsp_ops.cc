// ElasticBSP's ops, and SSP's and ASP's: start, step, drain, stop.

#include "ops/elastic_bsp_ops.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/led_ops.h"
#include "ops/packed.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "tensorflow/core/framework/op.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakElasticBspStart")
    .Input("secret: string")
    .Output("addresses: string")
    .Attr("stream: int")
    .Attr("rank: int")
    .Attr("size: int")
    .Attr("host: string")
    .Attr("deadline_milliseconds: int")
    .Attr("encrypt: bool = false")
    .Attr("dscp: list(int)")
    .Attr("parameters: int")
    .Attr("model: {'elastic_bsp', 'ssp', 'asp'}")
    .Attr("lookahead: int >= 1")
    .Attr("staleness: int >= 0")
    .Attr("prediction: {'last', 'mean', 'exponential'}")
    .Attr("labels: list(string)")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn(VectorOf<2>)
    .Doc(R"doc(
Starts one of them for one optimizer. addresses: [2], of this rank's worker, and of the controller,
or empty.

parameters: the key of the job's parameters.
labels: by parameter, the name under which Geryon's map_table knows it.
shapes: of the parameters.
)doc");

REGISTER_OP("TrepakElasticBspConnect")
    .Input("controller: string")
    .Input("workers: string")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Opens this rank's flows; the workers' addresses are by rank.");

REGISTER_OP("TrepakElasticBspStop")
    .Attr("stream: int")
    .Attr("patience_milliseconds: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends its threads and flows; what waits fails. Others get time to end as well.");

TREPAK_REGISTER_VALUES_OP("TrepakElasticBspAssign", "Sets the job's parameters.");

TREPAK_REGISTER_FETCH_OP("TrepakElasticBspFetch",
                         "Returns the job's parameters, for training to go on from.");

REGISTER_OP("TrepakElasticBspStep")
    .Input("made: num_values * T")
    .Input("finite: bool")
    .Output("values: num_values * T")
    .Attr("num_values: int >= 1")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc(R"doc(
Adds what a step has changed to the job's parameters, and returns what these are when this rank may
go on.

made: what the step has made of the values that it went on from.
finite: its gradients were; if not, it is left out.
)doc");

TREPAK_REGISTER_VALUES_OP(
    "TrepakElasticBspDrain",
    "Waits until all ranks do; counts what was made of the parameters since.");

class ElasticBspStartOp : public ElasticBspOp {
 public:
  explicit ElasticBspStartOp(tensorflow::OpKernelConstruction* context) : ElasticBspOp(context) {
    OP_REQUIRES_OK(context, JobFromAttributes(context, &options_.job));
    OP_REQUIRES_OK(context, RulesFromAttributes(context, &options_.scheduler));
    OP_REQUIRES_OK(context, context->GetAttr("parameters", &parameters_));
    options_.scheduler.workers = options_.job.size;
    OP_REQUIRES_OK(context, context->GetAttr("labels", &labels_));
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
    OP_REQUIRES(context, labels_.size() == packed_.count(),
                absl::InvalidArgumentError("there must be one label per parameter"));
    options_.worker.type = packed_.type();
    options_.worker.elements = packed_.elements();
    options_.worker.row = stream();
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    ElasticBspEngine::Options options = options_;
    OP_REQUIRES_OK(context, SecretFrom(context->input(0), &options.job));
    OP_REQUIRES_OK(context, ToFlowError(ServeParameters(static_cast<uint32_t>(parameters_),
                                                        options.worker.type, options.job.size,
                                                        Parts(), &options.global)));
    OP_REQUIRES_OK(context, ToFlowError(engine().Start(options)));
    OutputAddresses(context, engine());
  }

 private:
  // Neighbours that now have the same precedence travel together.
  std::vector<ServedParameters::Part> Parts() const {
    std::vector<ServedParameters::Part> parts;
    Precedence latest;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const std::string& label = labels_[i];
      const Precedence precedence = Engine::Global().PrecedenceOf(label);
      if (parts.empty() || precedence.priority != latest.priority ||
          precedence.order != latest.order) {
        parts.push_back({0, [label] { return Engine::Global().PrecedenceOf(label); }});
        latest = precedence;
      }
      parts.back().elements += packed_.elements(i);
    }
    return parts;
  }

  ElasticBspEngine::Options options_;
  int64_t parameters_ = 0;
  std::vector<std::string> labels_;
  Packed packed_;
};

class ElasticBspStepOp : public LedFetchOp<ElasticBspEngine> {
 public:
  using LedFetchOp::LedFetchOp;

 protected:
  void Wait(tensorflow::OpKernelContext* context, ElasticBspWorker* worker,
            ElasticBspWorker::Callback callback) override {
    const int count = context->num_inputs() - 1;
    worker->Step(PackInputs(context, 0, count), SampleBudget::Global().TakeDealt(),
                 context->input(count).scalar<bool>()(),
                 Output(context, worker, std::move(callback)));
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspStart").Device(tensorflow::DEVICE_CPU),
                        ElasticBspStartOp);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspConnect").Device(tensorflow::DEVICE_CPU),
                        LedConnectOp<ElasticBspEngine>);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspStop").Device(tensorflow::DEVICE_CPU),
                        StreamStopOp<ElasticBspEngine>);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspAssign").Device(tensorflow::DEVICE_CPU),
                        LedTakeOp<ElasticBspEngine, &ElasticBspWorker::Assign>);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspFetch").Device(tensorflow::DEVICE_CPU),
                        LedFetchOp<ElasticBspEngine>);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspStep").Device(tensorflow::DEVICE_CPU),
                        ElasticBspStepOp);
REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspDrain").Device(tensorflow::DEVICE_CPU),
                        LedTakeOp<ElasticBspEngine, &ElasticBspWorker::Drain>);

}  // namespace
}  // namespace trepak
