#include "horovod_ext/runtime/endpoint.h"

#include <cstring>

namespace trepak {
namespace {

Payload TextPayload(std::string_view text) {
  Payload payload = Payload::Allocate(text.size());
  std::memcpy(payload.mutable_data(), text.data(), text.size());
  return payload;
}

}  // namespace

Endpoint::Endpoint(const Options& options, std::shared_ptr<ErrorLatch> errors)
    : options_(options), errors_(std::move(errors)) {}

Status Endpoint::Connect(const std::vector<std::string>& addresses, const std::vector<int>& dscp) {
  TREPAK_RETURN_IF_ERROR(
      channels_.Open(transport_.get(), options_.rank, addresses, dscp, options_.deadline));
  connected_.store(true, std::memory_order_release);
  return error();
}

void Endpoint::Stop() {
  if (transport_ != nullptr) {
    transport_->Stop();
  }
}

void Endpoint::OnMessage(Message message) {
  if (message.header.kind == MessageKind::kAbort) {
    Fail(AbortedError(
        "rank " + std::to_string(message.header.sender) + " gave up: " +
        std::string(static_cast<const char*>(message.payload.data()), message.payload.size())));
    return;
  }
  if (!error().ok()) {
    return;
  }
  Status status = sequences_.Check(message.header);
  if (status.ok()) {
    status = Handle(std::move(message));
  }
  if (!status.ok()) {
    Fail(status.Annotate(Me()));
  }
}

void Endpoint::OnTick() {
  Status status = error();
  if (!status.ok()) {
    Failed(status);
    return;
  }
  status = Tick(Clock::now());
  if (!status.ok()) {
    Fail(status.Annotate(Me()));
  }
}

void Endpoint::Fail(const Status& status) {
  // The others' failures are consequences of the first one, which is what everybody should see.
  if (errors_->Latch(status) && connected_.load(std::memory_order_acquire)) {
    Message abort;
    abort.header.kind = MessageKind::kAbort;
    abort.payload = TextPayload(status.message());
    channels_.Broadcast(abort);
  }
  Failed(error());
}

void Endpoint::Park(const Status& status) {
  errors_->Latch(status);
  Failed(error());
}

Status Endpoint::Send(uint32_t peer, uint8_t priority, Message message) {
  Flow* const flow = channels_.Find(peer, priority);
  if (flow == nullptr) {
    return InternalError(Me() + " has no flow to rank " + std::to_string(peer));
  }
  return flow->Send(std::move(message));
}

}  // namespace trepak
