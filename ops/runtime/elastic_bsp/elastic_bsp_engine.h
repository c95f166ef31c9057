// What a process has of ElasticBSP, SSP or ASP: its worker, on rank 0 the controller, their flows.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_ENGINE_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "ops/runtime/coordination/led_engine.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_controller.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"

namespace trepak {

// Thread safety: as LedEngine.
class ElasticBspEngine : public LedEngine<ElasticBspWorker, ElasticBspController> {
 public:
  struct Options {
    JobOptions job;
    ElasticBspScheduler::Rules scheduler;
    ElasticBspWorker::Rules worker;
    std::shared_ptr<GlobalParameters> global;
  };

  ElasticBspEngine() : LedEngine("ElasticBSP, SSP or ASP") {}

  // Listens. Fails if it runs already.
  Status Start(const Options& options) {
    const Endpoint::Options about = options.job.endpoint();
    ElasticBspScheduler::Rules rules = options.scheduler;
    // Who does not answer is taken out before anybody's patience with it ends the job.
    rules.most_patience_seconds = 0.75 * std::chrono::duration<double>(about.deadline).count();
    std::vector<uint32_t> everyone(about.size);
    std::iota(everyone.begin(), everyone.end(), 0);
    return StartWith(
        options.job, everyone,
        [&](const std::shared_ptr<ErrorLatch>& errors) {
          return std::make_shared<ElasticBspWorker>(about, options.worker, 0, options.global,
                                                    errors);
        },
        [&](const std::shared_ptr<ErrorLatch>& errors) {
          return std::make_shared<ElasticBspController>(about, rules, errors);
        });
  }
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_ENGINE_H_
