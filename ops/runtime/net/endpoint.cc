#include "ops/runtime/net/endpoint.h"

#include <algorithm>

namespace trepak {
namespace {

constexpr std::chrono::milliseconds kLastWords{300};

}  // namespace

Endpoint::Endpoint(const Options& options, std::shared_ptr<ErrorLatch> errors)
    : options_(options), errors_(std::move(errors)) {}

Status Endpoint::Connect(const std::vector<std::string>& addresses, const std::vector<int>& dscp,
                         int send_buffer) {
  TREPAK_RETURN_IF_ERROR(channels_.Open(transport_.get(), options_.rank, addresses, dscp,
                                        send_buffer, options_.deadline));
  connected_.store(true, std::memory_order_release);
  return error();
}

void Endpoint::Leave() {
  if (connected_.load(std::memory_order_acquire) && error().ok()) {
    Message farewell;
    farewell.header.kind = endpoint::kLeave;
    farewell.header.order = kLastInOrder;
    channels_.BroadcastOnAll(farewell);
  }
}

void Endpoint::WaitUntilAllHaveLeft(Clock::time_point deadline) {
  if (!connected_.load(std::memory_order_acquire)) {
    return;
  }
  const std::set<uint32_t> peers = channels_.Peers();
  std::unique_lock<std::mutex> lock(mutex_);
  left_.wait_until(lock, deadline, [&] {
    // Who has told the others why it failed stays until they know: else they might see no more than
    // its end.
    const bool may_go = !error().ok() && !has_told_;
    return may_go || std::all_of(peers.begin(), peers.end(), [&](uint32_t peer) {
             // Its own process knows.
             return HasLeftLocked(peer) ||
                    (has_told_ && (peer == options_.rank || failed_.count(peer) > 0));
           });
  });
}

bool Endpoint::HasLeft(uint32_t peer) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return HasLeftLocked(peer);
}

bool Endpoint::HasLeftLocked(uint32_t peer) const {
  const auto found = farewells_.find(peer);
  return found != farewells_.end() && found->second >= channels_.priorities();
}

void Endpoint::OnFailure(uint32_t peer, const Status& status) {
  lost_.try_emplace(peer, status, Clock::now());
  NoteFailed(peer);
}

bool Endpoint::HasTold() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return has_told_;
}

void Endpoint::NoteFailed(uint32_t peer) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_.insert(peer);
  left_.notify_all();
}

void Endpoint::Stop() {
  if (transport_ != nullptr) {
    transport_->Stop();
  }
}

void Endpoint::OnMessage(Message message) {
  if (message.header.kind == endpoint::kAbort) {
    NoteFailed(message.header.sender);
    Fail(AbortedError("rank " + std::to_string(message.header.sender) +
                      " gave up: " + std::string(message.payload.view())));
    if (!HasTold()) {
      TellOfFailure(error());  // an endpoint beside it failed first; the sender waits for an answer
    }
    return;
  }
  if (!error().ok()) {
    return;
  }
  Status status = sequences_.Check(message.header);
  if (status.ok() && message.header.sender >= options_.size) {
    status =
        InvalidArgumentError("a message comes from rank " + std::to_string(message.header.sender) +
                             " of " + std::to_string(options_.size));
  } else if (status.ok() && message.header.kind == endpoint::kLeave) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++farewells_[message.header.sender];
    left_.notify_all();
  } else if (status.ok()) {
    status = Handle(std::move(message));
  }
  if (!status.ok()) {
    Fail(status.Annotate(Me()));
  }
}

void Endpoint::OnTick() {
  Status status = error();
  if (!status.ok()) {
    Park(status);
    return;
  }
  const Clock::time_point now = Clock::now();
  for (const auto& [peer, lost] : lost_) {
    if (now - lost.second >= kLastWords && !HasLeft(peer)) {
      Fail(lost.first);
      return;
    }
  }
  status = Tick(now);
  if (!status.ok()) {
    Fail(status.Annotate(Me()));
  }
}

void Endpoint::Fail(const Status& status) {
  // The others' failures are consequences of the first one, which is what everybody should see.
  if (errors_->Latch(status)) {
    TellOfFailure(status);
  }
  Park(error());
}

void Endpoint::TellOfFailure(const Status& status) {
  if (connected_.load(std::memory_order_acquire)) {
    Message abort;
    abort.header.kind = endpoint::kAbort;
    abort.payload = Payload::Copy(status.message());
    channels_.Broadcast(abort);
    std::lock_guard<std::mutex> lock(mutex_);
    has_told_ = true;
  }
}

void Endpoint::Park(const Status& status) {
  errors_->Latch(status);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    left_.notify_all();
  }
  Failed(error());
}

Status Endpoint::Send(uint32_t peer, Precedence precedence, Message message) {
  message.header.order = precedence.order;
  Flow* const flow = channels_.Find(peer, precedence.priority);
  if (flow == nullptr) {
    return InternalError(Me() + " has no flow to rank " + std::to_string(peer));
  }
  return flow->Send(std::move(message));
}

}  // namespace trepak
