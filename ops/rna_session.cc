// RNA, as a system: a worker on each rank, a coordinator on the first of each group.

#include <memory>
#include <string>

#include "ops/horovod_calls.h"
#include "ops/runtime/rna/rna_coordinator.h"
#include "ops/runtime/rna/rna_worker.h"
#include "ops/session_ops.h"
#include "ops/worker_ops.h"

namespace trepak {
namespace {

RnaCoordinator::Rules CoordinatorRules(const Json& options) {
  RnaCoordinator::Rules rules;
  rules.members = options.at("members").get<std::vector<uint32_t>>();
  rules.choices = options.at("choices").get<uint32_t>();
  rules.quorum = options.at("quorum").get<uint32_t>();
  rules.seed = options.at("seed").get<uint64_t>();
  return rules;
}

RnaWorker::Rules WorkerRules(const System::Opening& opening) {
  using Combine = RnaContributions::Combine;
  const Json& options = opening.options;
  const auto members = options.at("members").get<std::vector<uint32_t>>();
  const Packed packed = PackedFrom(options);
  RnaWorker::Rules rules;
  rules.type = packed.type();
  rules.elements = packed.elements();
  rules.staleness = options.at("staleness").get<uint64_t>();
  rules.combine = options.at("sums").get<bool>() ? Combine::kSum : Combine::kByVersion;
  rules.aligned = options.at("aligned").get<bool>();
  rules.members = static_cast<uint32_t>(members.size());
  rules.leads = opening.job.rank == members.at(0);
  rules.exchange.period = options.at("period").get<uint64_t>();
  rules.exchange.ranks = rules.members;
  rules.sum = "trepak_rna_" + std::to_string(opening.number);
  rules.row = static_cast<int>(opening.number);
  rules.run = opening.openings;
  return rules;
}

Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Json& options = opening.options;
  const Endpoint::Options about = opening.job.endpoint();
  const RnaCoordinator::Rules rules = CoordinatorRules(options);
  const RnaWorker::Rules worker_rules = WorkerRules(opening);
  std::shared_ptr<CollectiveCalls> calls;
  TREPAK_RETURN_IF_ERROR(MakeHorovodCalls(options.at("process_set").get<int32_t>(), &calls));
  std::shared_ptr<GlobalParameters> global;  // none if there is but one group
  if (!options.at("parameters").is_null()) {
    TREPAK_RETURN_IF_ERROR(ServeParameters(options.at("parameters").get<uint32_t>(),
                                           worker_rules.type, about.size,
                                           {{worker_rules.elements, Late}}, &global));
  }
  auto errors = std::make_shared<ErrorLatch>();
  const uint32_t first = rules.members.front();
  std::shared_ptr<RnaCoordinator> coordinator;
  if (about.rank == first) {
    coordinator = std::make_shared<RnaCoordinator>(about, rules, errors);
  }
  *parts = WorkerAndCoordinator(
      std::make_shared<RnaWorker>(about, worker_rules, first, calls, global, errors),
      std::move(coordinator), rules.members, opening.job);
  return OkStatus();
}

Json Statistics(const Session& session) {
  const auto worker = session.Find<RnaWorker>(kWorkerPart);
  const RnaWorker::Counters c = worker == nullptr ? RnaWorker::Counters{} : worker->counters();
  return {{"rounds", c.rounds},
          {"contributed", c.contributed},
          {"gradients", c.gradients},
          {"dropped", c.dropped},
          {"not_finite", c.not_finite},
          {"staleness", c.staleness},
          {"contributors", c.contributors},
          {"steps", c.steps},
          {"step_seconds", 1e-9 * static_cast<double>(c.step_nanoseconds)},
          {"copy_seconds", 1e-9 * static_cast<double>(c.copy_nanoseconds)}};
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    RnaWorker::kSystem, {"RNA",
                         Make,
                         Statistics,
                         {{"await", Awaiting<RnaWorker, &RnaWorker::Await>},
                          {"drain", Awaiting<RnaWorker, &RnaWorker::Drain>},
                          {"exchange", Handing<RnaWorker, &RnaWorker::Exchange>},
                          {"bring", Taking<RnaWorker, &RnaWorker::BringLastChange>},
                          {"assign", Taking<RnaWorker, &RnaWorker::Assign>},
                          {"fetch", Fetching<RnaWorker>}}});

}  // namespace
}  // namespace trepak
