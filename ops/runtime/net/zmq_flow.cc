#include "ops/runtime/net/zmq_flow.h"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "ops/runtime/net/zmq_crowd.h"
#include "ops/runtime/net/zmq_gate.h"
#include "ops/runtime/net/zmq_proof.h"

namespace trepak {
namespace {

// Messages that wait inside ZeroMQ and the kernel can't be overtaken by others of the same flow:
// one where they are meant to be, elsewhere a few, so that not each of them wakes the thread. What
// waits beyond them does so in queues_, by reference.
constexpr int kMessagesInside = 4;

constexpr int64_t kMostReplyBytes = 1024;

constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

ZmqFlow::ZmqFlow(void* context, const FlowTarget& target, const Options& options)
    : context_(context),
      target_(target),
      options_(options),
      handshake_(options.secret, options.rank, target.priority) {}

ZmqFlow::~ZmqFlow() {
  if (socket_ != nullptr) {
    CloseMonitored(socket_, monitor_);
  }
}

std::string ZmqFlow::Name() const {
  return "rank " + std::to_string(target_.peer) + " (" + target_.address + ", priority " +
         std::to_string(target_.priority) + ")";
}

Status ZmqFlow::Connect() {
  handshake_ = SenderHandshake(options_.secret, options_.rank, target_.priority);
  greeted_ = false;
  socket_ = zmq_socket(context_, ZMQ_DEALER);
  const int milliseconds = static_cast<int>(options_.silence.count());
  SetInt(socket_, ZMQ_LINGER, static_cast<int>(kFarewell.count()));
  SetInt(socket_, ZMQ_SNDHWM, target_.send_buffer == 0 ? kMessagesInside : 1);
  if (target_.send_buffer != 0) {
    SetInt(socket_, ZMQ_SNDBUF, target_.send_buffer);
  }
  SetInt(socket_, ZMQ_IMMEDIATE, 1);  // queue nothing before there is a connection
  SetInt(socket_, ZMQ_TOS, target_.dscp << 2);
  SetInt(socket_, ZMQ_HEARTBEAT_IVL, std::max(1, milliseconds / 4));
  SetInt(socket_, ZMQ_HEARTBEAT_TIMEOUT, milliseconds);
  SetInt(socket_, ZMQ_HANDSHAKE_IVL, static_cast<int>(ZmqGate::kProofDeadline.count()));
  // Replies are short. Whoever has taken the peer's place can't make this process hold more.
  zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &kMostReplyBytes, sizeof(kMostReplyBytes));
  GiveProof(socket_, options_.secret, target_.address, options_.encrypt);
  monitor_ = OpenMonitor(context_, socket_,
                         "flow-" + std::to_string(target_.priority) + "-" +
                             std::to_string(target_.peer) + "-" + std::to_string(++tries_),
                         kEvents);
  if (zmq_connect(socket_, target_.address.c_str()) != 0) {
    return UnavailableError("the address of " + Name() + " is none: " + zmq_strerror(zmq_errno()));
  }
  descriptors_ = {DescriptorOf(socket_), DescriptorOf(monitor_)};
  if (descriptors_[0] < 0 || descriptors_[1] < 0) {
    return ResourceExhaustedError("there are no sockets left for a flow to " + Name());
  }
  return OkStatus();
}

Status ZmqFlow::Proceed() {
  if (socket_ == nullptr && std::chrono::steady_clock::now() >= retry_at_) {
    TREPAK_RETURN_IF_ERROR(Connect());
  }
  if (socket_ != nullptr) {
    TREPAK_RETURN_IF_ERROR(ReadReplies());
    TREPAK_RETURN_IF_ERROR(ReadEvents());
    TREPAK_RETURN_IF_ERROR(EndGreedy());
  }
  if (socket_ == nullptr) {
    due_ = false;  // until the next tick
    return OkStatus();
  }
  SendQueued();
  const bool has_to_send = handshake_.open() ? !queues_.empty() : !greeted_;
  // Also makes the descriptor tell what comes from now on.
  due_ = IsReady(socket_, ZMQ_POLLIN | (has_to_send ? ZMQ_POLLOUT : 0));
  return OkStatus();
}

Status ZmqFlow::ReadReplies() {
  while (socket_ != nullptr) {
    std::vector<ZmqPart> parts = ReceiveParts(socket_);
    if (parts.empty()) {
      return OkStatus();
    }
    Message message;
    Status status = ToMessage(&parts, 0, &message);
    if (status.ok() && message.header.kind == handshake::kChallenge) {
      Message reply;
      status = handshake_.OnChallenge(message, &reply);
      if (status.ok() && !SendMessage(socket_, reply)) {
        return OnLoss(EndedByPeer());
      }
    } else if (status.ok()) {
      status = handshake_.OnWelcome(message);
    }
    if (!status.ok()) {
      return status.Annotate("the flow to " + Name());
    }
  }
  return OkStatus();
}

Status ZmqFlow::ReadEvents() {
  while (socket_ != nullptr) {
    const std::optional<ZmqEvent> event = ReadEvent(monitor_);
    if (!event) {
      break;
    }
    TREPAK_RETURN_IF_ERROR(OnEvent(*event));
  }
  return OkStatus();
}

Status ZmqFlow::OnEvent(const ZmqEvent& event) {
  switch (event.kind) {
    case ZMQ_EVENT_CONNECTED:
      connection_ = event.value;
      return OkStatus();
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      return InvalidArgumentError(Name() + " refused a flow: it does not know the job's secret");
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      return event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                 ? FailedPreconditionError(
                       "the flow to " + Name() + ": " + (options_.encrypt ? "this" : "the other") +
                       " rank encrypts its flows and the " + (options_.encrypt ? "other" : "this") +
                       " one does not: set TREPAK_ENCRYPT alike on all ranks")
                 : UnavailableError("no trepak of this job answers at " + Name());
    default:
      return OnLoss(EndedByPeer());
  }
}

Status ZmqFlow::EndGreedy() {
  // Where ZeroMQ has just closed it, the descriptor may be another's; it is tried again either way.
  if (!is_watching() || ReceivedBytes(connection_) <= ZmqGate::kMostProofBytes) {
    return OkStatus();
  }
  return OnLoss("what answers there says more than a rank of this job would before a flow is open");
}

std::string ZmqFlow::EndedByPeer() const {
  return "it ended " + std::to_string(tries_) +
         " connections before they were open; it is another job's process, or has ended, or "
         "strangers keep it busy";
}

Status ZmqFlow::OnLoss(const std::string& failure) {
  if (handshake_.open() || std::chrono::steady_clock::now() >= options_.deadline) {
    return UnavailableError("the connection to " + Name() +
                            " was lost: its process has ended, or the network was cut");
  }
  Disconnect();
  retry_at_ = std::chrono::steady_clock::now() + RetryAfter(tries_, &randombytes_uniform);
  failure_ = failure;
  return OkStatus();
}

void ZmqFlow::SendQueued() {
  if (!handshake_.open()) {
    if (!greeted_) {
      greeted_ = SendMessage(socket_, handshake_.Hello());
    }
    return;
  }
  while (!queues_.empty() && SendMessage(socket_, queues_.begin()->second.front())) {
    const auto first = queues_.begin();
    first->second.pop_front();
    ++sent_;
    if (first->second.empty()) {
      queues_.erase(first);
    }
  }
}

void ZmqFlow::Enqueue(Message message) {
  message.header.token = handshake_.token();
  const uint16_t order = message.header.order;
  queues_[order].push_back(std::move(message));
  due_ = true;
}

void ZmqFlow::Disconnect() {
  if (socket_ != nullptr) {
    SetInt(socket_, ZMQ_LINGER, 0);
    CloseMonitored(std::exchange(socket_, nullptr), monitor_);
  }
  descriptors_ = {-1, -1};
  connection_ = -1;
}

void ZmqFlow::Drop() {
  Disconnect();
  queues_.clear();
  ended_ = true;
}

}  // namespace trepak
