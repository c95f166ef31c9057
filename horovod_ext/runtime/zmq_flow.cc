#include "horovod_ext/runtime/zmq_flow.h"

#include <algorithm>
#include <utility>

namespace trepak {
namespace {

// Messages that wait inside ZeroMQ and the kernel can't be overtaken by others of the same flow:
// one where they are meant to be, elsewhere a few, so that not each of them wakes the thread. What
// waits beyond them does so in queues_, by reference.
constexpr int kMessagesInside = 4;

constexpr int kEvents = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

ZmqFlow::ZmqFlow(const FlowTarget& target, const Secret& secret, uint32_t rank)
    : target_(target), handshake_(secret, rank, target.priority) {}

ZmqFlow::~ZmqFlow() {
  if (socket_ != nullptr) {
    CloseMonitored(socket_, monitor_);
  }
}

std::string ZmqFlow::Name() const {
  return "rank " + std::to_string(target_.peer) + " (" + target_.address + ", priority " +
         std::to_string(target_.priority) + ")";
}

Status ZmqFlow::Connect(void* context, std::chrono::milliseconds silence) {
  socket_ = zmq_socket(context, ZMQ_DEALER);
  const int milliseconds = static_cast<int>(silence.count());
  SetInt(socket_, ZMQ_LINGER, static_cast<int>(kFarewell.count()));
  SetInt(socket_, ZMQ_SNDHWM, target_.send_buffer == 0 ? kMessagesInside : 1);
  if (target_.send_buffer != 0) {
    SetInt(socket_, ZMQ_SNDBUF, target_.send_buffer);
  }
  SetInt(socket_, ZMQ_IMMEDIATE, 1);  // queue nothing before there is a connection
  SetInt(socket_, ZMQ_TOS, target_.dscp << 2);
  SetInt(socket_, ZMQ_HEARTBEAT_IVL, std::max(1, milliseconds / 4));
  SetInt(socket_, ZMQ_HEARTBEAT_TIMEOUT, milliseconds);
  monitor_ = OpenMonitor(
      context, socket_,
      "flow-" + std::to_string(target_.priority) + "-" + std::to_string(target_.peer), kEvents);
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
  TREPAK_RETURN_IF_ERROR(ReadReplies());
  TREPAK_RETURN_IF_ERROR(ReadEvents());
  SendQueued();
  const bool has_to_send = handshake_.open() ? !queues_.empty() : !greeted_;
  // Also makes the descriptor tell what comes from now on.
  due_ = IsReady(socket_, ZMQ_POLLIN | (has_to_send ? ZMQ_POLLOUT : 0));
  return OkStatus();
}

Status ZmqFlow::ReadReplies() {
  while (true) {
    const std::vector<ZmqPart> parts = ReceiveParts(socket_);
    if (parts.empty()) {
      return OkStatus();
    }
    Message message;
    Status status = ToMessage(parts, 0, &message);
    if (status.ok() && message.header.kind == MessageKind::kChallenge) {
      Message reply;
      status = handshake_.OnChallenge(message, &reply);
      if (status.ok() && !SendMessage(socket_, reply)) {
        status = UnavailableError("it takes no messages");
      }
    } else if (status.ok()) {
      status = handshake_.OnWelcome(message);
    }
    if (!status.ok()) {
      return status.Annotate("the flow to " + Name());
    }
  }
}

Status ZmqFlow::ReadEvents() {
  const std::optional<ZmqEvent> event = ReadEvent(monitor_);
  if (!event) {
    return OkStatus();
  }
  if (event->kind == ZMQ_EVENT_DISCONNECTED) {
    return UnavailableError("the connection to " + Name() +
                            " was lost: its process has ended, or the network was cut");
  }
  return UnavailableError("no trepak of this job answers at " + Name());
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

void ZmqFlow::Drop() {
  if (socket_ != nullptr) {
    SetInt(socket_, ZMQ_LINGER, 0);
    CloseMonitored(socket_, monitor_);
    socket_ = nullptr;
  }
  queues_.clear();
}

}  // namespace trepak
