// Fela's scheduler without a network: for virtual time, and for tests with workers that Python
// makes.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls.h"
#include "ops/fela_json.h"
#include "ops/numbered.h"
#include "ops/runtime/fela/fela_rehearsal.h"
#include "ops/runtime/fela/fela_scheduler.h"
#include "ops/status_adapter.h"

namespace trepak {
namespace {

absl::Status MakeScheduler(const Arguments& given, Json* result) {
  auto rules = given.Get<FelaRules>("rules");
  TF_RETURN_IF_ERROR(ToAbslStatus(FelaPlan::Check(rules)));
  *result =
      Numbered<FelaScheduler>::Global().Add(std::make_shared<FelaScheduler>(std::move(rules)));
  return absl::OkStatus();
}

absl::Status DropScheduler(const Arguments& given, Json*) {
  Numbered<FelaScheduler>::Global().Take(given.Get<int64_t>("scheduler"));
  return absl::OkStatus();
}

// Does what a worker says ("begin", "request" or "report"), and returns the orders.
absl::Status Tell(const Arguments& given, Json* result) {
  const auto scheduler = Numbered<FelaScheduler>::Global().Find(given.Get<int64_t>("scheduler"));
  if (scheduler == nullptr) {
    return absl::NotFoundError("trepak: there is no such scheduler");
  }
  const auto worker = given.Get<uint32_t>("worker");
  const auto what = given.Get<std::string>("what");
  const auto number = given.GetOr<uint32_t>("number", 0);  // of samples, or the token
  const uint64_t iteration = given.GetOr<uint64_t>("iteration", scheduler->iteration());
  FelaScheduler::Orders orders;
  if (what == "begin") {
    TF_RETURN_IF_ERROR(ToAbslStatus(scheduler->Begin(worker, iteration, number, &orders)));
  } else if (what == "request") {
    const bool to_the_end = given.GetOr<bool>("to_the_end", false);
    TF_RETURN_IF_ERROR(ToAbslStatus(scheduler->Request(worker, iteration, &orders, to_the_end)));
  } else if (what == "report") {
    TF_RETURN_IF_ERROR(ToAbslStatus(scheduler->Report(worker, iteration, number, &orders)));
  } else {
    return absl::InvalidArgumentError("what: begin, request or report, is " + what);
  }
  *result = {{"assignments", orders.assignments},
             {"trained", orders.trained},
             {"over", orders.over()},
             {"ahead", orders.ahead},
             {"oldest", scheduler->iteration()}};
  return absl::OkStatus();
}

absl::Status CountScheduler(const Arguments& given, Json* result) {
  const auto scheduler = Numbered<FelaScheduler>::Global().Find(given.Get<int64_t>("scheduler"));
  if (scheduler == nullptr) {
    return absl::NotFoundError("trepak: there is no such scheduler");
  }
  *result = scheduler->counters();
  return absl::OkStatus();
}

// Says what rules make of themselves: T-i tokens by forward stage, what all tokens' numbers are
// smaller than, and each worker's T-1 tokens: number, first sample, samples.
absl::Status DescribePlan(const Arguments& given, Json* result) {
  auto rules = given.Get<FelaRules>("rules");
  TF_RETURN_IF_ERROR(ToAbslStatus(FelaPlan::Check(rules)));
  const FelaPlan plan(std::move(rules));
  Json tokens = Json::array();
  for (uint32_t stage = 1; stage <= plan.submodels(); ++stage) {
    tokens.push_back(plan.Tokens(stage));
  }
  Json parts = Json::array();
  for (uint32_t worker = 0; worker < plan.workers(); ++worker) {
    const uint32_t samples = plan.rules().batches[worker];
    Json own = Json::array();
    for (uint32_t i = 0; i < plan.FirstTokens(worker, samples); ++i) {
      const FelaPlan::Part part = plan.PartOf(worker, samples, i);
      own.push_back({part.token, part.first, part.samples});
    }
    parts.push_back(std::move(own));
  }
  *result = {
      {"tokens", std::move(tokens)}, {"numbers", plan.numbers()}, {"parts", std::move(parts)}};
  return absl::OkStatus();
}

// Has workers that only take time train an iteration, and says what that took of the scheduler.
absl::Status RehearseIteration(const Arguments& given, Json* result) {
  const auto rules = given.Get<FelaRules>("rules");
  TF_RETURN_IF_ERROR(ToAbslStatus(FelaPlan::Check(rules)));
  FelaPace pace;
  pace.fixed = given.Get<std::vector<double>>("fixed");
  pace.each = given.Get<std::vector<double>>("each");
  pace.recomputing = given.Get<double>("recomputing");
  pace.latency = given.Get<double>("latency");
  pace.delays = given.Get<std::vector<double>>("delays");
  FelaRehearsal made;
  TF_RETURN_IF_ERROR(ToAbslStatus(Rehearse(rules, pace, &made)));
  *result = {{"seconds", made.seconds},
             {"busy_seconds", made.busy_seconds},
             {"worst_seconds", made.worst_seconds},
             {"requests", made.requests},
             {"order", std::to_string(made.order)},
             {"counters", made.counters}};
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"fela_plan", DescribePlan},
                                                         {"fela_rehearse", RehearseIteration},
                                                         {"fela_make_scheduler", MakeScheduler},
                                                         {"fela_drop_scheduler", DropScheduler},
                                                         {"fela_tell_scheduler", Tell},
                                                         {"fela_count_scheduler", CountScheduler}});

}  // namespace
}  // namespace trepak
