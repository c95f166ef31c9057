// Fela, as a system: a worker and a peer on each rank, the token server on rank 0.

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/fela_json.h"
#include "ops/fela_parts.h"
#include "ops/runtime/fela/fela_token_server.h"
#include "ops/runtime/fela/fela_worker.h"
#include "ops/runtime/observe/injection.h"
#include "ops/session_ops.h"
#include "ops/worker_ops.h"

namespace trepak {
namespace {

// Some ranks begin the next one before others do. A staleness comes on top.
constexpr uint64_t kIterationsAtATime = 2;

Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Endpoint::Options about = opening.job.endpoint();
  const auto rules = opening.options.at("rules").get<FelaRules>();
  TREPAK_RETURN_IF_ERROR(FelaPlan::Check(rules));
  if (rules.batches.size() != about.size) {
    return InvalidArgumentError("there must be a batch size for each rank");
  }
  const auto errors = std::make_shared<ErrorLatch>();
  const auto peer = std::make_shared<FelaPeer>(about, kIterationsAtATime + rules.staleness, errors);
  std::shared_ptr<FelaTokenServer> server;
  if (about.rank == 0) {
    server = std::make_shared<FelaTokenServer>(about, rules, errors);
  }
  *parts = WorkerAndCoordinator(std::make_shared<FelaWorker>(about, 0, rules, peer, errors),
                                std::move(server), AllRanks(about.size), opening.job);
  Session::Part chunks;
  chunks.endpoint = peer;
  chunks.peers = kFelaPeerPart;
  for (const uint32_t rank : AllRanks(about.size)) {
    if (rank != about.rank) {  // what a worker has itself needs no flow
      chunks.members.push_back(rank);
    }
  }
  chunks.dscp = {opening.job.dscp.back()};
  TREPAK_RETURN_IF_ERROR(CarrierFrom(opening.options, "Fela's chunks", &chunks.carrier));
  parts->push_back(std::move(chunks));
  return OkStatus();
}

// This rank's, and on rank 0 what the token server has counted.
Json Statistics(const Session& session) {
  const auto worker = session.Find<FelaWorker>(kWorkerPart);
  const auto server = session.Find<FelaTokenServer>(kCoordinatorPart);
  const auto peer = session.Find<FelaPeer>(kFelaPeerPart);
  const auto w = worker == nullptr ? FelaWorker::Counters{} : worker->counters();
  const auto p = peer == nullptr ? FelaPeer::Counters{} : peer->counters();
  Json statistics = {{"iterations", w.iterations},           {"tokens", w.tokens},
                     {"chunks_sent", p.chunks_sent},         {"bytes_sent", p.bytes_sent},
                     {"chunks_received", p.chunks_received}, {"bytes_received", p.bytes_received},
                     {"chunks_local", p.chunks_local},       {"most_bytes_held", p.most_bytes_held},
                     {"fetching_seconds", p.waiting_seconds}};
  const Json served = server == nullptr ? FelaScheduler::Counters{} : server->counters();
  for (const auto& [name, value] : served.items()) {
    statistics["served_" + name] = value;
  }
  statistics["serving_seconds"] = server == nullptr ? 0.0 : server->busy_seconds();
  return statistics;
}

absl::Status Find(const Arguments& given, std::shared_ptr<FelaWorker>* worker) {
  const auto session = Sessions::Global().Find(FelaWorker::kSystem, given.Get<uint32_t>("session"));
  *worker = session == nullptr ? nullptr : session->Find<FelaWorker>(kWorkerPart);
  return *worker == nullptr ? ToFlowError(Sessions::Global().NotOpen(FelaWorker::kSystem))
                            : absl::OkStatus();
}

// Goes to the next iteration with so many samples; returns its number, and of each of this rank's
// T-1 tokens: number, first sample among those of all ranks, samples.
absl::Status Prepare(const Arguments& given, Json* result) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  Json parts = Json::array();
  for (const FelaPlan::Part& part : worker->Prepare(given.Get<uint32_t>("samples"))) {
    parts.push_back({part.token, part.first, part.samples});
  }
  *result = {{"iteration", worker->iteration()}, {"parts", std::move(parts)}};
  return absl::OkStatus();
}

// The samples of the T-1 tokens are there for others from now on.
absl::Status Begin(const Arguments& given, Json*) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  return ToFlowError(worker->Begin(given.Get<uint32_t>("samples")));
}

// Asks for the first token, after the delay that this rank is to have; it has none to ask for if
// the iteration is over by then, unless it is to hear that it may begin the next one.
absl::Status Request(const Arguments& given, Json*) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  const Injection::Duration delay = Injection::Global().TakeDelay();
  if (delay > Injection::Duration::zero() && worker->StandStill(delay) &&
      worker->staleness() == 0) {
    return absl::OkStatus();
  }
  return ToFlowError(worker->Request());
}

// Asks for a token, in order to begin no other iteration before this one is over.
absl::Status Finish(const Arguments& given, Json*) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  return ToFlowError(worker->Request(/*to_the_end=*/true));
}

// The token is trained, and what it has made is put; asks for the next one.
absl::Status Report(const Arguments& given, Json*) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  return ToFlowError(worker->Report(given.Get<uint32_t>("token"), given.Get<double>("loss")));
}

// This rank can't train on: tells the others.
absl::Status GiveUp(const Arguments& given, Json*) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  worker->GiveUp(given.Get<std::string>("why"));
  return absl::OkStatus();
}

// Fails if this rank or another has failed.
absl::Status Check(const Arguments& given, Json*) {
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  return ToFlowError(worker->status());
}

// Waits for what the token server says next: a token, a sub-model that is trained, the end, or that
// this rank may begin its next iteration.
absl::Status Next(const Arguments& given, Json* result) {
  using Kind = FelaWorker::Event::Kind;
  std::shared_ptr<FelaWorker> worker;
  TF_RETURN_IF_ERROR(Find(given, &worker));
  const auto promise = std::make_shared<std::promise<std::pair<Status, FelaWorker::Event>>>();
  worker->Next([promise](const Status& status, const FelaWorker::Event& event) {
    promise->set_value({status, event});
  });
  const auto [status, event] = promise->get_future().get();
  TF_RETURN_IF_ERROR(ToFlowError(status));
  *result = {
      {"token", nullptr}, {"trained", nullptr}, {"over", nullptr}, {"iteration", event.iteration}};
  if (event.kind == Kind::kToken) {
    (*result)["token"] = event.token;
  } else if (event.kind == Kind::kTrained) {
    (*result)["trained"] = event.submodel;
  } else if (event.kind == Kind::kOver) {
    (*result)["over"] = {{"samples", event.samples}, {"loss", event.loss}};
  }
  if (event.kind == (worker->staleness() == 0 ? Kind::kOver : Kind::kAhead)) {
    Injection::Global().EndStep();
  }
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered =
    Sessions::Global().Register(FelaWorker::kSystem, {"Fela", Make, Statistics, {}});

[[maybe_unused]] const bool kCallsRegistered = RegisterCalls({{"fela_prepare", Prepare},
                                                              {"fela_begin", Begin},
                                                              {"fela_request", Request},
                                                              {"fela_finish", Finish},
                                                              {"fela_report", Report},
                                                              {"fela_give_up", GiveUp},
                                                              {"fela_check", Check},
                                                              {"fela_next", Next}});

}  // namespace
}  // namespace trepak
