// What a process has of RNA: its worker, on rank 0 the controller, and their flows.

#ifndef TREPAK_HOROVOD_EXT_RUNTIME_RNA_ENGINE_H_
#define TREPAK_HOROVOD_EXT_RUNTIME_RNA_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "horovod_ext/runtime/job_endpoints.h"
#include "horovod_ext/runtime/rna_controller.h"
#include "horovod_ext/runtime/rna_worker.h"

namespace trepak {

// Starts in two steps, as Engine does. Thread safety: every method may be called from any thread.
// Owns all threads of RNA.
class RnaEngine {
 public:
  struct Options {
    JobOptions job;
    RnaController::Rules controller;  // its members are this rank's group; the first runs it
    RnaWorker::Rules worker;
    std::shared_ptr<RoundReducer> reducer;     // of the group
    std::shared_ptr<GlobalParameters> global;  // null if there is but one group
  };

  RnaEngine() = default;
  RnaEngine(const RnaEngine&) = delete;
  RnaEngine& operator=(const RnaEngine&) = delete;

  // Listens. Fails if it runs already.
  Status Start(const Options& options);

  // Where others reach this rank's worker, and the controller: empty but on the group's first rank.
  std::string worker_address() const;
  std::string controller_address() const;

  // Opens the flows; addresses of workers are by rank, those of others than members are left out.
  Status Connect(const std::string& controller, const std::vector<std::string>& workers);

  // Ends all threads; what waits fails. Start may follow.
  void Stop(std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // Null if it does not run. What it returns stays valid while it is held.
  std::shared_ptr<RnaWorker> worker() const;

 private:
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  uint32_t runs_ = 0;  // started so far: on all ranks alike
  std::vector<int> dscp_;
  std::vector<uint32_t> members_;
  std::shared_ptr<RnaController> controller_;
  std::shared_ptr<RnaWorker> worker_;
};

}  // namespace trepak

#endif  // TREPAK_HOROVOD_EXT_RUNTIME_RNA_ENGINE_H_
