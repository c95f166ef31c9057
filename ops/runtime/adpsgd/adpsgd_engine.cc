#include "ops/runtime/adpsgd/adpsgd_engine.h"

#include <utility>

namespace trepak {

Status AdpsgdEngine::Start(const Options& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (peer_ != nullptr) {
    return FailedPreconditionError("AD-PSGD runs already");
  }
  auto peer = std::make_shared<AdpsgdPeer>(options.job.endpoint(), options.peer,
                                           std::make_shared<ErrorLatch>());
  TREPAK_RETURN_IF_ERROR(Listen(options.job, peer.get()));
  job_ = options.job;
  peer_ = std::move(peer);
  return OkStatus();
}

std::string AdpsgdEngine::address() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return peer_ == nullptr ? "" : peer_->transport().address();
}

Status AdpsgdEngine::Connect(std::vector<std::string> addresses) {
  std::shared_ptr<AdpsgdPeer> peer;
  JobOptions job;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peer = peer_;
    job = job_;
  }
  if (peer == nullptr || addresses.size() != job.size) {
    return FailedPreconditionError("AD-PSGD does not run, or has another number of ranks");
  }
  addresses[job.rank].clear();  // nobody averages with himself
  return peer->Connect(addresses, {job.dscp.back()});
}

void AdpsgdEngine::Stop(std::chrono::milliseconds patience) {
  std::shared_ptr<AdpsgdPeer> peer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peer.swap(peer_);
  }
  if (peer != nullptr) {
    LeaveTogether({peer.get()}, patience);
    peer->Cancel(CancelledError("AD-PSGD was stopped"));
    peer->Stop();
  }
}

std::shared_ptr<AdpsgdPeer> AdpsgdEngine::peer() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return peer_;
}

}  // namespace trepak
