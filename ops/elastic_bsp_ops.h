// What ElasticBSP's ops share.

#ifndef TREPAK_OPS_ELASTIC_BSP_OPS_H_
#define TREPAK_OPS_ELASTIC_BSP_OPS_H_

#include <map>
#include <string>

#include "ops/runtime/elastic_bsp/elastic_bsp_coordinator.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"
#include "ops/session_ops.h"
#include "ops/worker_ops.h"

namespace trepak {

using ElasticBspOp = SessionOp<ElasticBspWorker>;

// How far workers may go, as options say it; throws what Json does for those that are wrong.
inline ElasticBspScheduler::Rules RulesFrom(const Json& options) {
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

}  // namespace trepak

#endif  // TREPAK_OPS_ELASTIC_BSP_OPS_H_
