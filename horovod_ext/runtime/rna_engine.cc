#include "horovod_ext/runtime/rna_engine.h"

#include <utility>

namespace trepak {
namespace {

constexpr uint32_t kControllersRank = 0;

}  // namespace

Status RnaEngine::Start(const Options& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (worker_ != nullptr) {
    return FailedPreconditionError("RNA runs already");
  }
  const Endpoint::Options about = options.job.endpoint();
  auto errors = std::make_shared<ErrorLatch>();
  std::shared_ptr<RnaController> controller;
  if (about.rank == kControllersRank) {
    controller = std::make_shared<RnaController>(about, options.controller, errors);
    TREPAK_RETURN_IF_ERROR(Listen(options.job, controller.get()));
  }
  auto worker =
      std::make_shared<RnaWorker>(about, options.worker, kControllersRank, options.reducer, errors);
  TREPAK_RETURN_IF_ERROR(Listen(options.job, worker.get()));
  dscp_ = {options.job.dscp.front()};  // small messages that everybody waits for
  controller_ = std::move(controller);
  worker_ = std::move(worker);
  return OkStatus();
}

std::string RnaEngine::worker_address() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return worker_ == nullptr ? "" : worker_->transport().address();
}

std::string RnaEngine::controller_address() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return controller_ == nullptr ? "" : controller_->transport().address();
}

Status RnaEngine::Connect(const std::string& controller, const std::vector<std::string>& workers) {
  std::shared_ptr<RnaController> mine;
  std::shared_ptr<RnaWorker> worker;
  std::vector<int> dscp;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    mine = controller_;
    worker = worker_;
    dscp = dscp_;
  }
  if (worker == nullptr) {
    return FailedPreconditionError("RNA does not run");
  }
  std::vector<std::string> controllers(kControllersRank + 1);
  controllers[kControllersRank] = controller;
  TREPAK_RETURN_IF_ERROR(worker->Connect(controllers, dscp));
  return mine == nullptr ? OkStatus() : mine->Connect(workers, dscp);
}

void RnaEngine::Stop(std::chrono::milliseconds patience) {
  std::shared_ptr<RnaController> controller;
  std::shared_ptr<RnaWorker> worker;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    controller.swap(controller_);
    worker.swap(worker_);
  }
  LeaveTogether({worker.get(), controller.get()}, patience);
  if (worker != nullptr) {
    worker->Cancel(CancelledError("RNA was stopped"));
    worker->Stop();
  }
  if (controller != nullptr) {
    controller->Stop();
  }
}

std::shared_ptr<RnaWorker> RnaEngine::worker() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return worker_;
}

}  // namespace trepak
