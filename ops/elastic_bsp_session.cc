// ElasticBSP, SSP and ASP, as a system.

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/packed.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_coordinator.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_simulation.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"
#include "ops/session_ops.h"
#include "ops/worker_ops.h"

namespace trepak {
namespace {

// How far workers may go, as options say it.
ElasticBspScheduler::Rules RulesFrom(const Json& options) {
  using Model = ElasticBspScheduler::Model;
  using Kind = Expectation::Kind;
  static const std::map<std::string, Model> models = {
      {"elastic_bsp", Model::kElasticBsp}, {"ssp", Model::kSsp}, {"asp", Model::kAsp}};
  static const std::map<std::string, Kind> kinds = {
      {"last", Kind::kLast}, {"mean", Kind::kMean}, {"exponential", Kind::kExponential}};
  ElasticBspScheduler::Rules rules;
  rules.model = models.at(options.at("model").get<std::string>());
  rules.prediction = kinds.at(options.at("prediction").get<std::string>());
  rules.lookahead = options.at("lookahead").get<uint32_t>();
  rules.staleness = options.at("staleness").get<uint32_t>();
  return rules;
}

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

// Of the rank that plans.
Json ToJson(const ElasticBspScheduler::Counters& c) {
  return {{"barriers", c.barriers},
          {"steps", c.steps},
          {"waiting", c.waiting},
          {"longest_waits", c.longest_waits},
          {"predicted_waits", c.predicted_waits},
          {"predictions", c.predictions},
          {"error", c.error},
          {"taken_out", c.taken_out},
          {"planning", c.planning}};
}

// This rank's, and on rank 0 what was planned.
Json Statistics(const Session& session) {
  const auto worker = session.Find<ElasticBspWorker>(kWorkerPart);
  const auto coordinator = session.Find<ElasticBspCoordinator>(kCoordinatorPart);
  const auto c = worker == nullptr ? ElasticBspWorker::Counters{} : worker->counters();
  Json statistics = {{"steps", c.steps},
                     {"barriers", c.barriers},
                     {"met", c.met},
                     {"not_finite", c.not_finite},
                     {"waiting_seconds", 1e-9 * static_cast<double>(c.waiting_nanoseconds)},
                     {"exchange_seconds", 1e-9 * static_cast<double>(c.exchange_nanoseconds)}};
  const Json planned =
      ToJson(coordinator == nullptr ? ElasticBspScheduler::Counters{} : coordinator->counters());
  for (const auto& [name, value] : planned.items()) {
    statistics["planned_" + name] = value;
  }
  return statistics;
}

// Says when steps ended, on the rank that plans; else nothing. Of each: rank, end, computing,
// communication.
absl::Status GetRecorded(const Arguments& given, Json* recorded) {
  const auto session =
      Sessions::Global().Find(ElasticBspWorker::kSystem, given.Get<uint32_t>("session"));
  const auto coordinator =
      session == nullptr ? nullptr : session->Find<ElasticBspCoordinator>(kCoordinatorPart);
  *recorded = Json::array();
  if (coordinator != nullptr) {
    for (const ElasticBspScheduler::Step& step : coordinator->recorded()) {
      recorded->push_back({step.worker, step.end, step.computing, step.communication});
    }
  }
  return absl::OkStatus();
}

// Runs the scheduler on recorded times until all workers together have taken so many steps.
//
// intervals: [workers, steps]; see Intervals, as for `until` and `after_barrier`, of which there
// may
//   be none, and `begin`.
// pauses: see Simulate.
// record: say of each step when it began and ended, too.
absl::Status SimulateSteps(const Arguments& given, Json* made) {
  const auto times = given.Get<Matrix>("intervals");
  if (times.values.empty()) {
    return absl::InvalidArgumentError("there must be a step of each worker");
  }
  const auto until = given.Get<Matrix>("until");
  const bool matches = until.rows == times.rows && until.columns == times.columns;
  if (!until.values.empty() && !matches) {
    return absl::InvalidArgumentError("there must be a time for each step, or none");
  }
  const auto longer = given.Get<std::vector<double>>("after_barrier");
  if (!longer.empty() && longer.size() != times.rows) {
    return absl::InvalidArgumentError("there must be a factor for each worker, or none");
  }
  ElasticBspScheduler::Rules rules = RulesFrom(given.Get<Json>("options"));
  rules.workers = static_cast<uint32_t>(times.rows);
  const auto or_null = [](const std::vector<double>& values) {
    return values.empty() ? nullptr : values.data();
  };
  const Intervals intervals{times.values.data(), or_null(until.values), times.rows,
                            times.columns,       or_null(longer),       given.Get<double>("begin")};
  const Simulated simulated =
      Simulate(rules, intervals, static_cast<uint64_t>(given.AtLeast(1, "steps")),
               given.Get<std::vector<uint64_t>>("pauses"));
  Json recorded = Json::array();
  if (given.Get<bool>("record")) {
    for (const Simulated::Step& step : simulated.steps) {
      recorded.push_back({step.worker, step.begin, step.end});
    }
  }
  *made = {{"seconds", simulated.seconds},
           {"waiting", simulated.waiting},
           {"steps", simulated.taken},
           {"schedule", ToJson(simulated.counters)},
           {"recorded", std::move(recorded)}};
  return absl::OkStatus();
}

[[maybe_unused]] const bool kCallsRegistered =
    RegisterCalls({{"elastic_bsp_recorded", GetRecorded}, {"simulate_elastic_bsp", SimulateSteps}});

// Adds what a step has changed to the job's parameters, and goes on when this rank may. Behind the
// parameters there is one more value: whether the step's gradients were finite, 1 or 0. If not, the
// step is left out.
void Step(const std::shared_ptr<Endpoint>& worker, const Payload& values, System::Done done) {
  const auto own = std::static_pointer_cast<ElasticBspWorker>(worker);
  constexpr auto kRoom = static_cast<size_t>(Payload::kAlignment);  // of one value; rest: zeros
  if (values.size() < kRoom) {
    done(InvalidArgumentError("a step needs the value that says whether it was finite"), Payload());
    return;
  }
  const size_t bytes = values.size() - kRoom;
  const bool finite = values.view().find_first_not_of('\0', bytes) != std::string_view::npos;
  own->Step(values.Part(0, bytes), SampleBudget::Global().TakeDealt(), finite,
            CountingSamples(own, std::move(done)));
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    ElasticBspWorker::kSystem, {"ElasticBSP, SSP or ASP",
                                Make,
                                Statistics,
                                {{"step", Step},
                                 {"assign", Taking<ElasticBspWorker, &ElasticBspWorker::Assign>},
                                 {"fetch", Fetching<ElasticBspWorker>},
                                 {"drain", Taking<ElasticBspWorker, &ElasticBspWorker::Drain>}}});

}  // namespace
}  // namespace trepak
