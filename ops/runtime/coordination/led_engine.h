// What a process has of a system whose ranks each have a worker, and one a controller.

#ifndef TREPAK_OPS_RUNTIME_COORDINATION_LED_ENGINE_H_
#define TREPAK_OPS_RUNTIME_COORDINATION_LED_ENGINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/job_endpoints.h"

namespace trepak {

// Starts in two steps, as Engine does: a system's own Start makes worker and controller, and
// Connect opens the flows. Thread safety: every method may be called from any thread. Owns all
// threads.
template <typename Worker, typename Controller>
class LedEngine {
 public:
  using WorkerType = Worker;

  LedEngine(const LedEngine&) = delete;
  LedEngine& operator=(const LedEngine&) = delete;

  // What whoever needs it is told when it does not run.
  Status NotRunning() const {
    return NotFoundError(name_ + " does not run: Horovod was shut down, or no step of such an " +
                         "optimizer has been taken yet");
  }

  // Where others reach this rank's worker, and the controller: empty but on the first member.
  std::string worker_address() const { return AddressOf(&LedEngine::worker_); }
  std::string controller_address() const { return AddressOf(&LedEngine::controller_); }

  // Opens the flows; addresses of workers are by rank, those of others than members are left out.
  Status Connect(const std::string& controller, const std::vector<std::string>& workers) {
    std::shared_ptr<Controller> mine;
    std::shared_ptr<Worker> worker;
    std::vector<int> dscp;
    std::vector<uint32_t> members;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      members = members_;
      mine = controller_;
      worker = worker_;
      dscp = dscp_;
    }
    if (worker == nullptr) {
      return NotRunning();
    }
    std::vector<std::string> controllers(members.front() + 1);
    controllers.back() = controller;
    TREPAK_RETURN_IF_ERROR(worker->Connect(controllers, dscp));
    if (mine == nullptr) {
      return OkStatus();
    }
    std::vector<std::string> group(workers.size());
    for (const uint32_t member : members) {
      group.at(member) = workers.at(member);
    }
    return mine->Connect(group, dscp);
  }

  // Ends all threads; what waits fails. Start may follow.
  void Stop(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) {
    std::shared_ptr<Controller> controller;
    std::shared_ptr<Worker> worker;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      controller.swap(controller_);
      worker.swap(worker_);
    }
    LeaveTogether({worker.get(), controller.get()}, patience);
    if (worker != nullptr) {
      worker->Cancel(CancelledError(name_ + " was stopped"));
      worker->Shutdown();  // not in its own thread, which may hold it for a moment longer
    }
    if (controller != nullptr) {
      controller->Stop();
    }
  }

  // Null if it does not run, or another rank has it. What they return stays valid while it is held.
  std::shared_ptr<Worker> worker() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return worker_;
  }
  std::shared_ptr<Controller> controller() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return controller_;
  }

 protected:
  // `name`: of the system, as users know it.
  explicit LedEngine(std::string name) : name_(std::move(name)) {}

  // Listens: `make_worker(errors)` and, on the first of the members, `make_controller(errors)` make
  // what does. Fails if it runs already.
  template <typename MakeWorker, typename MakeController>
  Status StartWith(const JobOptions& job, const std::vector<uint32_t>& members,
                   const MakeWorker& make_worker, const MakeController& make_controller) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (worker_ != nullptr) {
      return FailedPreconditionError(name_ + " runs already");
    }
    if (members.empty()) {
      return InvalidArgumentError("a group of " + name_ + " has no members");
    }
    auto errors = std::make_shared<ErrorLatch>();
    std::shared_ptr<Controller> controller;
    if (job.rank == members.front()) {
      controller = make_controller(errors);
      TREPAK_RETURN_IF_ERROR(Listen(job, controller.get()));
    }
    std::shared_ptr<Worker> worker = make_worker(errors);
    TREPAK_RETURN_IF_ERROR(Listen(job, worker.get()));
    dscp_ = {job.dscp.front()};  // small messages that everybody waits for
    members_ = members;
    controller_ = std::move(controller);
    worker_ = std::move(worker);
    return OkStatus();
  }

 private:
  template <typename Member>
  std::string AddressOf(Member member) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return this->*member == nullptr ? "" : (this->*member)->transport().address();
  }

  const std::string name_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::vector<int> dscp_;
  std::vector<uint32_t> members_;
  std::shared_ptr<Controller> controller_;
  std::shared_ptr<Worker> worker_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_COORDINATION_LED_ENGINE_H_
