#include "ops/runtime/net/zmq_listener.h"

#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

namespace trepak {
namespace {

constexpr int kReceiveMessages = 8;
constexpr int kBacklog = 1024;  // whom the kernel turns away waits for a second before it returns
constexpr size_t kMostConnections = 4096;
// The gate is asked between turns; so they are short.
constexpr int kMessagesPerTurn = 64;
constexpr size_t kBytesPerTurn = 4 << 20;
constexpr int kLoggedRefusals = 5;

}  // namespace

ZmqListener::ZmqListener(const Options& options, Transport::Receiver* receiver)
    : options_(options),
      receiver_(receiver),
      gate_(options.secret, options.encrypt, options.flows) {}

void ZmqListener::Close() {
  if (socket_ != nullptr) {
    zmq_socket_monitor(socket_, nullptr, 0);
    zmq_close(std::exchange(socket_, nullptr));
  }
  gate_.Close();
  connections_.clear();
}

Status ZmqListener::Listen(void* context) {
  socket_ = zmq_socket(context, ZMQ_ROUTER);
  SetInt(socket_, ZMQ_LINGER, 0);
  SetInt(socket_, ZMQ_TOS, options_.dscp << 2);
  SetInt(socket_, ZMQ_RCVHWM, kReceiveMessages);
  SetInt(socket_, ZMQ_BACKLOG, kBacklog);
  const std::string me = "rank " + std::to_string(options_.rank);
  Status guarded = gate_.Guard(context, socket_);
  if (!guarded.ok()) {
    return guarded.Annotate(me);
  }
  const std::string wanted = "tcp://" + options_.host + ":*";
  if (zmq_bind(socket_, wanted.c_str()) != 0) {
    return UnavailableError(me + " can't listen at " + options_.host +
                            " for other ranks' flows: " + zmq_strerror(zmq_errno()));
  }
  char bound[256];
  size_t size = sizeof(bound);
  zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, bound, &size);
  address_ = bound;
  gate_.SetAddress(address_);
  return OkStatus();
}

std::array<int, ZmqListener::kDescriptors> ZmqListener::descriptors() const {
  const std::array<int, ZmqGate::kDescriptors> of_gate = gate_.descriptors();
  return {DescriptorOf(socket_), of_gate[0], of_gate[1]};
}

void ZmqListener::Proceed() {
  const bool has_read_all = ReceiveFromPeers();
  for (size_t strangers = gate_.Proceed(); strangers > 0; --strangers) {
    Refuse("", InvalidArgumentError("a connection ended that had proved nothing"));
  }
  if (has_read_all) {
    gate_.EndLate();
  }
  due_ = !has_read_all;
}

bool ZmqListener::ReceiveFromPeers() {
  size_t bytes = 0;
  for (int messages = 0; messages < kMessagesPerTurn && bytes < kBytesPerTurn; ++messages) {
    std::vector<ZmqPart> parts = ReceiveParts(socket_);  // the first is ZeroMQ's own
    if (parts.empty()) {
      return true;
    }
    for (const ZmqPart& part : parts) {
      bytes += part.view().size();
    }
    const std::string connection(parts[0].view());
    const int fd = parts.back().fd();
    Message message;
    Status status = ToMessage(&parts, 1, &message);
    const auto known = connections_.find(connection);
    if (!status.ok() && known != connections_.end() && known->second->open()) {
      // No stranger's: what was meant is lost.
      const uint32_t rank = known->second->rank();
      receiver_->OnFailure(rank, status.Annotate("from rank " + std::to_string(rank)));
      continue;
    }
    if (!status.ok()) {
      Refuse(connection, status.Annotate(parts.back().from()));
      continue;
    }
    OnIncoming(connection, fd, std::move(message));
  }
  return false;
}

void ZmqListener::OnIncoming(const std::string& connection, int fd, Message message) {
  if (connections_.size() >= kMostConnections) {
    ForgetStrangers();
  }
  auto& handshake = connections_[connection];
  if (handshake == nullptr) {
    handshake = std::make_unique<ReceiverHandshake>(options_.secret);
  }
  if (handshake->open()) {
    if (message.header.token != handshake->token()) {
      Refuse("", InvalidArgumentError("a message with a wrong token"));
      return;
    }
    message.header.sender = handshake->rank();
    message.header.priority = handshake->priority();
    receiver_->OnMessage(std::move(message));
    return;
  }
  gate_.Recognize(fd);
  Message reply;
  const Status status = handshake->OnMessage(message, &reply);
  if (!status.ok()) {
    Refuse(connection, status);
    return;
  }
  if (handshake->open()) {
    gate_.Admit(fd);
  }
  if (zmq_send(socket_, connection.data(), connection.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
    SendMessage(socket_, reply);
  }
}

void ZmqListener::ForgetStrangers() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = it->second->open() ? std::next(it) : connections_.erase(it);
  }
}

void ZmqListener::Refuse(const std::string& connection, const Status& why) {
  connections_.erase(connection);
  if (refused_.fetch_add(1, std::memory_order_relaxed) < kLoggedRefusals) {
    std::fprintf(stderr, "trepak: rank %u refused a message: %s\n", options_.rank,
                 std::string(why.message()).c_str());
  }
}

}  // namespace trepak
