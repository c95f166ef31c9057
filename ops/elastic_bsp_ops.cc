// ElasticBSP, SSP and ASP, as a system, and their ops.

#include "ops/elastic_bsp_ops.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/packed.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/worker_ops.h"
#include "tensorflow/core/framework/op.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakElasticBspStep")
    .Input("made: num_values * T")
    .Input("finite: bool")
    .Output("values: num_values * T")
    .Attr("num_values: int >= 1")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc(R"doc(
Adds what a step has changed to the job's parameters, and returns what these are when this rank may
go on.

made: what the step has made of the values that it went on from.
finite: its gradients were; if not, it is left out.
)doc");

// Neighbours that now have the same precedence travel together.
std::vector<ServedParameters::Part> PartsOf(const std::vector<uint32_t>& keys,
                                            const Packed& packed) {
  std::vector<ServedParameters::Part> parts;
  Precedence latest;
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t key = keys[i];
    const Precedence precedence = ParameterService::Global().PrecedenceOf(key);
    if (parts.empty() || precedence.priority != latest.priority ||
        precedence.order != latest.order) {
      parts.push_back({0, [key] { return ParameterService::Global().PrecedenceOf(key); }});
      latest = precedence;
    }
    parts.back().elements += packed.elements(i);
  }
  return parts;
}

// The options' keys are, by parameter, those under which the table of variables knows them.
Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Json& options = opening.options;
  const Endpoint::Options about = opening.job.endpoint();
  ElasticBspScheduler::Rules rules = RulesFrom(options);
  rules.workers = about.size;
  // Who does not answer is taken out before anybody's patience with it ends the job.
  rules.most_patience_seconds = 0.75 * std::chrono::duration<double>(about.deadline).count();
  const Packed packed = PackedFrom(options);
  const auto keys = options.at("keys").get<std::vector<uint32_t>>();
  if (keys.size() != packed.count()) {
    return InvalidArgumentError("there must be one key per parameter");
  }
  ElasticBspWorker::Rules worker;
  worker.type = packed.type();
  worker.elements = packed.elements();
  worker.row = static_cast<int>(opening.number);
  std::shared_ptr<GlobalParameters> global;
  TREPAK_RETURN_IF_ERROR(ServeParameters(options.at("parameters").get<uint32_t>(), worker.type,
                                         about.size, PartsOf(keys, packed), &global));
  auto errors = std::make_shared<ErrorLatch>();
  std::shared_ptr<ElasticBspCoordinator> coordinator;
  if (about.rank == 0) {
    coordinator = std::make_shared<ElasticBspCoordinator>(about, rules, errors);
  }
  *parts =
      WorkerAndCoordinator(std::make_shared<ElasticBspWorker>(about, worker, 0, global, errors),
                           std::move(coordinator), AllRanks(about.size), opening.job);
  return OkStatus();
}

// This rank's, and on rank 0 what was planned; see ElasticBspScheduler::Counters.
Json Statistics(const Session& session) {
  const auto worker = session.Find<ElasticBspWorker>(kWorkerPart);
  const auto coordinator = session.Find<ElasticBspCoordinator>(kCoordinatorPart);
  const auto c = worker == nullptr ? ElasticBspWorker::Counters{} : worker->counters();
  const auto planned =
      coordinator == nullptr ? ElasticBspScheduler::Counters{} : coordinator->counters();
  return {{"steps", c.steps},
          {"barriers", c.barriers},
          {"met", c.met},
          {"not_finite", c.not_finite},
          {"waiting_seconds", 1e-9 * static_cast<double>(c.waiting_nanoseconds)},
          {"exchange_seconds", 1e-9 * static_cast<double>(c.exchange_nanoseconds)},
          {"planned_barriers", planned.barriers},
          {"planned_steps", planned.steps},
          {"planned_waiting", planned.waiting},
          {"planned_longest_waits", planned.longest_waits},
          {"planned_predicted_waits", planned.predicted_waits},
          {"planned_predictions", planned.predictions},
          {"planned_error", planned.error},
          {"planned_taken_out", planned.taken_out},
          {"planned_planning", planned.planning}};
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    ElasticBspWorker::kSystem, {"ElasticBSP, SSP or ASP",
                                Make,
                                Statistics,
                                {{"assign", Taking<ElasticBspWorker, &ElasticBspWorker::Assign>},
                                 {"fetch", Fetching<ElasticBspWorker>},
                                 {"drain", Taking<ElasticBspWorker, &ElasticBspWorker::Drain>}}});

// Adds what a step has changed, unless it is not finite, and goes on when this rank may.
class ElasticBspStepOp : public SessionOp<ElasticBspWorker, tensorflow::AsyncOpKernel> {
 public:
  explicit ElasticBspStepOp(tensorflow::OpKernelConstruction* context) : SessionOp(context) {
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<ElasticBspWorker> worker = FindOrFail(context);
    if (worker == nullptr) {
      done();
      return;
    }
    const int count = context->num_inputs() - 1;
    worker->Step(PackInputs(context, 0, count), SampleBudget::Global().TakeDealt(),
                 context->input(count).scalar<bool>()(),
                 CountingSamples(worker, [this, context, done = std::move(done)](
                                             const Status& status, const Payload& values) {
                   Finish(context, packed_, status, values);
                   done();
                 }));
  }

 private:
  Packed packed_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakElasticBspStep").Device(tensorflow::DEVICE_CPU),
                        ElasticBspStepOp);

}  // namespace
}  // namespace trepak
