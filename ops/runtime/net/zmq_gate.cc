#include "ops/runtime/net/zmq_gate.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace trepak {
namespace {

// Where ZeroMQ asks (RFC 27), and the places of what it says.
constexpr char kQuestions[] = "inproc://zeromq.zap.01";
enum Question : size_t { kVersion, kRequest, kDomain, kAddress, kIdentity, kMechanism, kFirst };

void SendPart(void* socket, std::string_view part, bool more = true) {
  zmq_send(socket, part.data(), part.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
}

}  // namespace

ZmqGate::ZmqGate(const Secret& secret, bool encrypt, size_t flows)
    : secret_(secret),
      encrypt_(encrypt),
      crowd_(std::max(kMostUnproven, 2 * flows), &randombytes_uniform) {}

void ZmqGate::Close() {
  for (int* const descriptor : {&nothing_, &copy_}) {
    if (*descriptor >= 0) {
      close(std::exchange(*descriptor, -1));
    }
  }
  for (void** const socket : {&events_, &questions_}) {
    if (*socket != nullptr) {
      zmq_close(std::exchange(*socket, nullptr));
    }
  }
}

Status ZmqGate::Guard(void* context, void* listener) {
  questions_ = zmq_socket(context, ZMQ_REP);
  SetInt(questions_, ZMQ_LINGER, 0);
  if (zmq_bind(questions_, kQuestions) != 0) {
    return UnavailableError(std::string("nobody can say who may open flows: ") +
                            zmq_strerror(zmq_errno()));
  }
  AskForProof(listener, secret_, encrypt_);
  SetInt(listener, ZMQ_HANDSHAKE_IVL, static_cast<int>(kProofDeadline.count()));
  zmq_setsockopt(listener, ZMQ_MAXMSGSIZE, &kMostFrameBytes, sizeof(kMostFrameBytes));
  events_ = OpenMonitor(context, listener, "listener", ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
  descriptors_ = {DescriptorOf(questions_), DescriptorOf(events_)};
  nothing_ = eventfd(0, EFD_CLOEXEC);
  copy_ = eventfd(0, EFD_CLOEXEC);
  if (std::min({descriptors_[0], descriptors_[1], nothing_, copy_}) < 0) {
    return ResourceExhaustedError("there are no sockets left to listen with");
  }
  return OkStatus();
}

size_t ZmqGate::Proceed() {
  Answer();
  ReadEvents();
  EndCrowd();
  EndGreedy();
  return std::exchange(refused_, 0);
}

void ZmqGate::Answer() {
  while (true) {
    const std::vector<ZmqPart> question = ReceiveParts(questions_);
    if (question.empty()) {
      return;
    }
    std::vector<std::string_view> credentials;
    for (size_t i = kFirst; i < question.size(); ++i) {
      credentials.push_back(question[i].view());
    }
    const bool holds = check_ && question.size() > kMechanism &&
                       check_->Holds(question[kMechanism].view(), credentials);
    SendPart(questions_, "1.0");
    SendPart(questions_, question.size() > kRequest ? question[kRequest].view() : "");
    SendPart(questions_, holds ? "200" : "400");
    SendPart(questions_, holds ? "OK" : "the job's secret is another");
    SendPart(questions_, "");         // a name for the peer
    SendPart(questions_, "", false);  // what is to be known of it
  }
}

void ZmqGate::ReadEvents() {
  while (const std::optional<ZmqEvent> event = ReadEvent(events_)) {
    refused_ += unproven_.count(event->value);
    Forget(event->value);
    if (event->kind == ZMQ_EVENT_ACCEPTED) {
      unproven_[event->value] = ++came_;
      standing_[came_] = {event->value, Clock::now()};
      crowd_.Add(came_);
    }
  }
}

void ZmqGate::Forget(int fd) {
  const auto found = unproven_.find(fd);
  if (found != unproven_.end()) {
    standing_.erase(found->second);
    crowd_.Remove(found->second);
    unproven_.erase(found);
  }
}

void ZmqGate::EndCrowd() {
  while (const std::optional<uint64_t> number = crowd_.TakeOneTooMany()) {
    End(*number);
  }
}

void ZmqGate::EndGreedy() {
  const Clock::time_point now = Clock::now();
  if (now - watched_ < kWatchEvery) {
    return;
  }
  watched_ = now;
  std::vector<uint64_t> greedy;
  for (const auto& [number, connection] : standing_) {
    if (ReceivedBytes(connection.fd) > kMostProofBytes) {
      greedy.push_back(number);
    }
  }
  for (const uint64_t number : greedy) {
    End(number);
  }
}

void ZmqGate::EndLate() {
  const Clock::time_point now = Clock::now();
  while (!standing_.empty() && now - standing_.begin()->second.since > kProofDeadline) {
    End(standing_.begin()->first);
  }
}

// ZeroMQ may close the connection meanwhile, and the descriptor become another's. It says so before
// it does: what still stands once the descriptor has been copied is what was copied.
void ZmqGate::End(uint64_t number) {
  const auto found = standing_.find(number);
  if (found == standing_.end()) {
    return;
  }
  dup3(found->second.fd, copy_, O_CLOEXEC);  // works where no descriptor is left
  ReadEvents();
  if (standing_.erase(number) != 0) {
    crowd_.Remove(number);
    shutdown(copy_, SHUT_RDWR);
  }
  dup3(nothing_, copy_, O_CLOEXEC);
}

void ZmqGate::Recognize(int fd) {
  ReadEvents();
  const auto found = unproven_.find(fd);
  if (found != unproven_.end()) {
    crowd_.Remove(found->second);
  }
}

void ZmqGate::Admit(int fd) {
  ReadEvents();  // a connection before it may have had the same descriptor
  Forget(fd);
}

}  // namespace trepak
