// What shall make this process slower than others.

#include <map>
#include <string>
#include <utility>

#include "ops/calls.h"
#include "ops/runtime/observe/injection.h"

namespace trepak {

namespace {

absl::Status Configure(const Arguments& given, Json*) {
  using Kind = DelayRule::Kind;
  static const std::map<std::string, Kind> kinds = {{"uniform", Kind::kUniform},
                                                    {"round-robin", Kind::kRoundRobin},
                                                    {"probability", Kind::kProbability}};
  InjectionOptions options;
  options.slow = given.Get<float>("slow");
  for (const Json& delay : given.Get<Json>("delays")) {
    options.delays.push_back({kinds.at(delay.at("kind").get<std::string>()),
                              delay.at("low").get<double>(), delay.at("high").get<double>(),
                              delay.at("probability").get<double>()});
  }
  options.seed = static_cast<uint64_t>(given.Get<int64_t>("seed"));
  options.rank = given.Get<int>("rank");
  options.size = given.Get<int>("size");
  options.kill_step = given.Get<int64_t>("kill_step");
  Injection::Global().Configure(std::move(options));
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"configure_injection", Configure}});

}  // namespace
}  // namespace trepak
