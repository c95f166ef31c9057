#include "ops/runtime/net/zmq_socket.h"

#include <linux/tcp.h>  // glibc's own has no tcpi_bytes_received
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace trepak {
namespace {

constexpr size_t kCopiedBytes = 1024;  // up to so many, copying costs less than sharing

void CloseAndDelete(zmq_msg_t* part) {
  zmq_msg_close(part);
  delete part;
}

void Release(void*, void* owner) { delete static_cast<Payload*>(owner); }

// Calls again what a signal interrupted.
template <typename Call>
int Insist(const Call& call) {
  int result = -1;
  do {
    result = call();
  } while (result < 0 && zmq_errno() == EINTR);
  return result;
}

void SendPart(void* socket, const Payload& payload, bool more) {
  zmq_msg_t part;
  if (payload.size() <= kCopiedBytes) {
    zmq_msg_init_size(&part, payload.size());
    if (payload.size() != 0) {
      std::memcpy(zmq_msg_data(&part), payload.data(), payload.size());
    }
  } else {
    auto* owner = new Payload(payload);
    zmq_msg_init_data(&part, owner->mutable_data(), owner->size(), &Release, owner);
  }
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  if (Insist([&] { return zmq_msg_send(&part, socket, flags); }) < 0) {
    zmq_msg_close(&part);
  }
}

}  // namespace

ZmqPart::ZmqPart() : part_(new zmq_msg_t, &CloseAndDelete) { zmq_msg_init(part_.get()); }

bool ZmqPart::Receive(void* socket) {
  return Insist([&] { return zmq_msg_recv(part_.get(), socket, ZMQ_DONTWAIT); }) >= 0;
}

std::string ZmqPart::from() const {
  const char* address = zmq_msg_gets(part_.get(), "Peer-Address");
  return address == nullptr ? "a stranger" : address;
}

std::vector<ZmqPart> ReceiveParts(void* socket) {
  std::vector<ZmqPart> parts;
  ZmqPart part;
  // Once the first part is there, ZeroMQ has all of them.
  while (part.Receive(socket)) {
    parts.push_back(std::move(part));
    if (!parts.back().more()) {
      break;
    }
    part = ZmqPart();
  }
  return parts;
}

Status ToMessage(std::vector<ZmqPart>* parts, size_t first, Message* message) {
  if (parts->size() < first + 2) {
    return InvalidArgumentError("a message has " + std::to_string(parts->size() - first) +
                                " parts, not a header and a payload");
  }
  const auto payload = parts->begin() + static_cast<std::ptrdiff_t>(first) + 1;
  size_t size = 0;
  std::for_each(payload, parts->end(), [&](const ZmqPart& part) { size += part.view().size(); });
  TREPAK_RETURN_IF_ERROR(Decode((*parts)[first].view(), size, &message->header));
  if (payload + 1 == parts->end()) {
    message->payload = payload->payload();
    return OkStatus();
  }
  message->payload = Payload::Allocate(size);
  char* at = static_cast<char*>(message->payload.mutable_data());
  std::for_each(payload, parts->end(), [&](ZmqPart& part) {
    at = std::copy(part.view().begin(), part.view().end(), at);
    part = ZmqPart();
  });
  return OkStatus();
}

bool SendMessage(void* socket, const Message& message) {
  const HeaderBytes header = Encode(message.header, message.payload.size());
  if (zmq_send(socket, header.data(), header.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return false;
  }
  // The first part reserved the place of the whole message.
  size_t sent = 0;
  do {
    const size_t bytes = std::min(kPartBytes, message.payload.size() - sent);
    const bool more = sent + bytes < message.payload.size();
    SendPart(socket, message.payload.Part(sent, bytes), more);
    sent += bytes;
  } while (sent < message.payload.size());
  return true;
}

void SetInt(void* socket, int option, int value) {
  zmq_setsockopt(socket, option, &value, sizeof(value));
}

int DescriptorOf(void* socket) {
  int descriptor = -1;
  size_t size = sizeof(descriptor);
  zmq_getsockopt(socket, ZMQ_FD, &descriptor, &size);
  return descriptor;
}

bool IsReady(void* socket, int events) {
  int ready = 0;
  size_t size = sizeof(ready);
  const int asked = Insist([&] { return zmq_getsockopt(socket, ZMQ_EVENTS, &ready, &size); });
  return asked == 0 && (ready & events) != 0;
}

void* OpenMonitor(void* context, void* socket, const std::string& name, int events) {
  const std::string address = "inproc://" + name;
  zmq_socket_monitor(socket, address.c_str(), events);
  void* monitor = zmq_socket(context, ZMQ_PAIR);
  SetInt(monitor, ZMQ_LINGER, 0);
  SetInt(monitor, ZMQ_RCVHWM, 0);  // no bound
  zmq_connect(monitor, address.c_str());
  return monitor;
}

std::optional<ZmqEvent> ReadEvent(void* monitor) {
  const std::vector<ZmqPart> parts = ReceiveParts(monitor);
  ZmqEvent event;
  if (parts.empty() || parts[0].view().size() < sizeof(event.kind) + sizeof(event.value)) {
    return std::nullopt;
  }
  std::memcpy(&event.kind, parts[0].view().data(), sizeof(event.kind));
  std::memcpy(&event.value, parts[0].view().data() + sizeof(event.kind), sizeof(event.value));
  return event;
}

uint64_t ReceivedBytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

void CloseMonitored(void* socket, void* monitor) {
  zmq_socket_monitor(socket, nullptr, 0);
  zmq_close(monitor);
  zmq_close(socket);
}

}  // namespace trepak
