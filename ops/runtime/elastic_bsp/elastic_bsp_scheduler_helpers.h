// What tests of ElasticBspScheduler share.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SCHEDULER_HELPERS_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SCHEDULER_HELPERS_H_

#include <cstdint>
#include <vector>

#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"

namespace trepak {

inline ElasticBspScheduler::Rules Rules(
    uint32_t workers, ElasticBspScheduler::Model model = ElasticBspScheduler::Model::kElasticBsp) {
  ElasticBspScheduler::Rules rules;
  rules.workers = workers;
  rules.model = model;
  return rules;
}

// What workers were granted, in their order.
inline std::vector<uint64_t> StepsOf(const ElasticBspScheduler::Orders& orders) {
  std::vector<uint64_t> steps;
  for (const ElasticBspScheduler::Grant& grant : orders.grants) {
    steps.push_back(grant.steps);
  }
  return steps;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SCHEDULER_HELPERS_H_
