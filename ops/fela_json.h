// Fela's rules and the token server's orders as Python has them.

#ifndef TREPAK_OPS_FELA_JSON_H_
#define TREPAK_OPS_FELA_JSON_H_

#include <cstdint>
#include <vector>

#include "ops/calls.h"
#include "ops/runtime/fela/fela_scheduler.h"

namespace trepak {

inline void from_json(const Json& given, FelaRules& rules) {
  rules.batches = given.at("batches").get<std::vector<uint32_t>>();
  rules.threshold = given.at("threshold").get<uint32_t>();
  rules.weights = given.at("weights").get<std::vector<uint32_t>>();
  rules.subsets = given.at("subsets").get<std::vector<std::vector<uint32_t>>>();
  rules.depth_first = given.at("depth_first").get<bool>();
  rules.hierarchical = given.at("hierarchical").get<bool>();
  rules.recompute = given.at("recompute").get<bool>();
  rules.staleness = given.value("staleness", 0U);
}

// Of inputs: kind, token, holder, samples; of ranges: first sample, count.
inline void to_json(Json& made, const FelaScheduler::Assignment& a) {
  Json inputs = Json::array();
  for (const FelaScheduler::Input& one : a.inputs) {
    inputs.push_back({static_cast<uint32_t>(one.kind), one.token, one.holder, one.samples});
  }
  Json ranges = Json::array();
  for (const FelaScheduler::Range& one : a.ranges) {
    ranges.push_back({one.first, one.count});
  }
  made = {
      {"worker", a.worker},          {"token", a.token},           {"stage", a.stage},
      {"samples", a.samples},        {"recomputes", a.recomputes}, {"inputs", std::move(inputs)},
      {"ranges", std::move(ranges)}, {"iteration", a.iteration}};
}

inline void to_json(Json& made, const FelaScheduler::Counters& c) {
  made = {{"iterations", c.iterations}, {"tokens", c.tokens}, {"helped", c.helped},
          {"recomputed", c.recomputed}, {"remote", c.remote}, {"inputs", c.inputs},
          {"duplicates", c.duplicates}, {"waits", c.waits},   {"ahead", c.ahead},
          {"most_ahead", c.most_ahead}};
}

}  // namespace trepak

#endif  // TREPAK_OPS_FELA_JSON_H_
