#include "horovod_ext/runtime/rna_engine.h"

#include <utility>

namespace trepak {
Status RnaEngine::Start(const Options& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (worker_ != nullptr) {
    return FailedPreconditionError("RNA runs already");
  }
  const Endpoint::Options about = options.job.endpoint();
  const std::vector<uint32_t>& members = options.controller.members;
  if (members.empty()) {
    return InvalidArgumentError("a group of RNA has no members");
  }
  auto errors = std::make_shared<ErrorLatch>();
  std::shared_ptr<RnaController> controller;
  if (about.rank == members.front()) {
    controller = std::make_shared<RnaController>(about, options.controller, errors);
    TREPAK_RETURN_IF_ERROR(Listen(options.job, controller.get()));
  }
  RnaWorker::Rules rules = options.worker;
  rules.run = runs_++;
  auto worker = std::make_shared<RnaWorker>(about, rules, members.front(), options.reducer,
                                            options.global, errors);
  TREPAK_RETURN_IF_ERROR(Listen(options.job, worker.get()));
  dscp_ = {options.job.dscp.front()};  // small messages that everybody waits for
  members_ = members;
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
  std::vector<uint32_t> members;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    members = members_;
    mine = controller_;
    worker = worker_;
    dscp = dscp_;
  }
  if (worker == nullptr) {
    return FailedPreconditionError("RNA does not run");
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
    worker->Shutdown();  // not in its own thread, which may hold it for a moment longer
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
