// What a process has of RNA: its worker, on its group's first rank the controller, and their flows.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_ENGINE_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "ops/runtime/coordination/led_engine.h"
#include "ops/runtime/rna/rna_controller.h"
#include "ops/runtime/rna/rna_worker.h"

namespace trepak {

// Thread safety: as LedEngine.
class RnaEngine : public LedEngine<RnaWorker, RnaController> {
 public:
  struct Options {
    JobOptions job;
    RnaController::Rules controller;  // its members are this rank's group; the first runs it
    RnaWorker::Rules worker;
    std::shared_ptr<RoundReducer> reducer;     // of the group
    std::shared_ptr<GlobalParameters> global;  // null if there is but one group
  };

  RnaEngine() : LedEngine("RNA") {}

  // Listens. Fails if it runs already.
  Status Start(const Options& options) {
    const Endpoint::Options about = options.job.endpoint();
    RnaWorker::Rules rules = options.worker;
    rules.run = runs_++;
    return StartWith(
        options.job, options.controller.members,
        [&](const std::shared_ptr<ErrorLatch>& errors) {
          return std::make_shared<RnaWorker>(about, rules, options.controller.members.front(),
                                             options.reducer, options.global, errors);
        },
        [&](const std::shared_ptr<ErrorLatch>& errors) {
          return std::make_shared<RnaController>(about, options.controller, errors);
        });
  }

 private:
  std::atomic<uint32_t> runs_{0};  // started so far: on all ranks alike
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_ENGINE_H_
