#include "horovod_ext/runtime/zmq_transport.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "horovod_ext/runtime/zmq_socket.h"

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReceiveMessages = 8;
constexpr int64_t kMostBytes = int64_t{1} << 31;
constexpr size_t kMostConnections = 4096;
constexpr int kTickMilliseconds = 100;
constexpr int kMessagesPerTurn = 64;
constexpr int kLoggedRefusals = 5;

// Places in items_.
constexpr size_t kWake = 0;
constexpr size_t kListener = 1;
constexpr size_t kStrangers = 2;
constexpr size_t kFlows = 3;

constexpr char kZapDomain[] = "trepak";

Status ZmqError(const std::string& what) {
  return UnavailableError(what + ": " + zmq_strerror(zmq_errno()));
}

}  // namespace

ZmqTransport::ZmqTransport(const Options& options, Receiver* receiver)
    : options_(options), receiver_(receiver) {}

Status ZmqTransport::Start(const Options& options, Receiver* receiver,
                           std::unique_ptr<ZmqTransport>* transport) {
  std::unique_ptr<ZmqTransport> made(new ZmqTransport(options, receiver));
  TREPAK_RETURN_IF_ERROR(made->Listen());
  made->thread_ = std::thread([raw = made.get()] {
    pthread_setname_np(pthread_self(), "trepak-flows");
    raw->Loop();
  });
  *transport = std::move(made);
  return OkStatus();
}

ZmqTransport::~ZmqTransport() {
  Stop();
  if (context_ != nullptr) {
    zmq_ctx_term(context_);
  }
  if (wake_fd_ >= 0) {
    close(wake_fd_);
  }
}

Status ZmqTransport::Listen() {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  context_ = zmq_ctx_new();
  if (wake_fd_ < 0 || context_ == nullptr) {
    return UnavailableError("rank " + std::to_string(options_.rank) +
                            ": flows can't be set up: " + std::strerror(errno));
  }
  listener_ = zmq_socket(context_, ZMQ_ROUTER);
  SetInt(listener_, ZMQ_LINGER, 0);
  SetInt(listener_, ZMQ_TOS, options_.dscp << 2);
  SetInt(listener_, ZMQ_RCVHWM, kReceiveMessages);
  zmq_setsockopt(listener_, ZMQ_MAXMSGSIZE, &kMostBytes, sizeof(kMostBytes));
  // Refuses peers of ZeroMQ's protocols before 3.0, for which a stranger's bytes can pass: an
  // assertion of libzmq 4.3.4 ends the process if such a peer leaves at the wrong time.
  zmq_setsockopt(listener_, ZMQ_ZAP_DOMAIN, kZapDomain, sizeof(kZapDomain) - 1);
  const std::string wanted = "tcp://" + options_.host + ":*";
  if (zmq_bind(listener_, wanted.c_str()) != 0) {
    Status status = ZmqError("rank " + std::to_string(options_.rank) + " can't listen at " +
                             options_.host + " for other ranks' flows");
    zmq_close(std::exchange(listener_, nullptr));
    return status;
  }
  char bound[256];
  size_t size = sizeof(bound);
  zmq_getsockopt(listener_, ZMQ_LAST_ENDPOINT, bound, &size);
  address_ = bound;
  return OkStatus();
}

void ZmqTransport::Wake() {
  if (awake_) {
    return;
  }
  awake_ = true;
  const uint64_t one = 1;
  // A full counter has woken the thread already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

Status ZmqTransport::Open(const FlowTarget& target, std::chrono::milliseconds deadline) {
  const FlowId id(target.priority, target.peer);
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopping_ || outcomes_.count(id) != 0 || to_open_.count(id) != 0) {
    return FailedPreconditionError("a flow to rank " + std::to_string(target.peer) +
                                   " of this priority was opened before, or all have ended");
  }
  to_open_.emplace(id, target);
  Wake();
  const auto over = [&] { return outcomes_.count(id) != 0 || stopping_; };
  const bool in_time = opened_.wait_for(lock, deadline, over);
  if (in_time && outcomes_.count(id) == 0) {
    return CancelledError("rank " + std::to_string(options_.rank) + " stopped its flows");
  }
  if (!in_time) {
    return DeadlineExceededError("rank " + std::to_string(options_.rank) + " waited " +
                                 std::to_string(deadline.count()) + " ms for rank " +
                                 std::to_string(target.peer) + " at " + target.address +
                                 " to accept a flow");
  }
  return outcomes_[id];
}

Status ZmqTransport::Send(uint32_t peer, uint8_t priority, Message message) {
  const FlowId id(priority, peer);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto outcome = outcomes_.find(id);
  if (outcome == outcomes_.end()) {
    return FailedPreconditionError("there is no flow to rank " + std::to_string(peer) +
                                   " of priority " + std::to_string(priority));
  }
  TREPAK_RETURN_IF_ERROR(outcome->second);
  to_send_.emplace_back(id, std::move(message));
  Wake();
  return OkStatus();
}

void ZmqTransport::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    opened_.notify_all();
    Wake();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ZmqTransport::Loop() {
  strangers_ = OpenMonitor(context_, listener_, "listener", ZMQ_EVENT_DISCONNECTED);
  Clock::time_point last_tick = Clock::now();
  uint64_t sent_before = 0;
  int silent_ticks = 0;       // without a message sent; a machine that stood still has just one
  bool has_mail = true;       // of listener_
  bool has_strangers = true;  // events of strangers_
  while (true) {
    Wait(has_mail || HasDueFlows() ? 0 : kTickMilliseconds);
    has_mail = has_mail || items_[kListener].revents != 0;
    has_strangers = has_strangers || items_[kStrangers].revents != 0;
    if (has_mail || has_strangers) {
      has_mail = !ReceiveFromPeers();
    }
    if (has_strangers && !has_mail) {  // who has brought a message is none
      CountStrangers();
      has_strangers = false;
    }
    TakeWork();
    for (auto& [id, flow] : flows_) {  // the highest priority first
      if (flow->is_due()) {
        Proceed(flow.get());
      }
    }
    const Clock::time_point now = Clock::now();
    if (now - last_tick >= std::chrono::milliseconds(kTickMilliseconds)) {
      last_tick = now;
      receiver_->OnTick();
      // A descriptor is silent about what ZeroMQ had already read when a signal interrupted it.
      has_mail = has_strangers = true;
      for (auto& [id, flow] : flows_) {
        flow->set_due();
      }
      const uint64_t sent = SentMessages();
      silent_ticks = sent == sent_before ? silent_ticks + 1 : 0;
      sent_before = sent;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopping_) {
      silent_ticks = 0;
    } else if ((to_send_.empty() && IsIdle()) ||
               silent_ticks * kTickMilliseconds >= ZmqFlow::kFarewell.count()) {
      break;
    }
  }
  CloseMonitored(std::exchange(listener_, nullptr), strangers_);
  flows_.clear();
  connections_.clear();
}

void ZmqTransport::Wait(int milliseconds) {
  items_.assign({{wake_fd_, POLLIN, 0},
                 {DescriptorOf(listener_), POLLIN, 0},
                 {DescriptorOf(strangers_), POLLIN, 0}});
  for (const auto& [id, flow] : flows_) {
    if (!flow->has_ended()) {
      for (const int descriptor : flow->descriptors()) {
        items_.push_back({descriptor, POLLIN, 0});
      }
    }
  }
  poll(items_.data(), items_.size(), milliseconds);
  size_t item = kFlows;
  for (auto& [id, flow] : flows_) {
    for (size_t i = 0; i < ZmqFlow::kDescriptors && !flow->has_ended(); ++i, ++item) {
      if (items_[item].revents != 0) {
        flow->set_due();
      }
    }
  }
  if (items_[kWake].revents != 0) {
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t read_bytes = read(wake_fd_, &woken, sizeof(woken));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  awake_ = true;
}

bool ZmqTransport::HasDueFlows() const {
  return std::any_of(flows_.begin(), flows_.end(),
                     [](const auto& entry) { return entry.second->is_due(); });
}

bool ZmqTransport::IsIdle() const {
  return std::all_of(flows_.begin(), flows_.end(),
                     [](const auto& entry) { return entry.second->is_idle(); });
}

uint64_t ZmqTransport::SentMessages() const {
  uint64_t sent = 0;
  for (const auto& [id, flow] : flows_) {
    sent += flow->sent();
  }
  return sent;
}

void ZmqTransport::TakeWork() {
  std::map<FlowId, FlowTarget> to_open;
  std::deque<std::pair<FlowId, Message>> to_send;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    to_open.swap(to_open_);
    to_send.swap(to_send_);
    awake_ = false;
  }
  for (const auto& [id, target] : to_open) {
    auto& flow = flows_[id];
    flow =
        std::make_unique<ZmqFlow>(target, target.secret.value_or(options_.secret), options_.rank);
    const Status status = flow->Connect(context_, options_.silence);
    if (!status.ok()) {
      Settle(flow.get(), status);
    }
  }
  for (auto& [id, message] : to_send) {
    ZmqFlow* const flow = flows_.at(id).get();
    if (!flow->has_ended()) {
      flow->Enqueue(std::move(message));
    }
  }
}

void ZmqTransport::Proceed(ZmqFlow* flow) {
  if (flow->has_ended()) {
    return;
  }
  const bool was_open = flow->is_open();
  const Status status = flow->Proceed();
  if (!status.ok() || flow->is_open() != was_open) {
    Settle(flow, status);
  }
}

bool ZmqTransport::ReceiveFromPeers() {
  for (int turn = 0; turn < kMessagesPerTurn; ++turn) {
    const std::vector<ZmqPart> parts = ReceiveParts(listener_);  // the first is ZeroMQ's own
    if (parts.empty()) {
      return true;
    }
    const std::string connection(parts[0].view());
    heard_.insert(parts.back().fd());
    Message message;
    Status status = ToMessage(parts, 1, &message);
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
    OnIncoming(connection, std::move(message));
  }
  return false;
}

void ZmqTransport::OnIncoming(const std::string& connection, Message message) {
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
  Message reply;
  const Status status = handshake->OnMessage(message, &reply);
  if (!status.ok()) {
    Refuse(connection, status);
    return;
  }
  if (zmq_send(listener_, connection.data(), connection.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
    SendMessage(listener_, reply);
  }
}

void ZmqTransport::CountStrangers() {
  while (const std::optional<ZmqEvent> event = ReadEvent(strangers_)) {
    if (heard_.erase(event->value) == 0) {
      Refuse("", InvalidArgumentError("a connection ended that had brought none"));
    }
  }
}

void ZmqTransport::ForgetStrangers() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = it->second->open() ? std::next(it) : connections_.erase(it);
  }
}

void ZmqTransport::Refuse(const std::string& connection, const Status& why) {
  connections_.erase(connection);
  if (refused_.fetch_add(1, std::memory_order_relaxed) < kLoggedRefusals) {
    std::fprintf(stderr, "trepak: rank %u refused a message: %s\n", options_.rank,
                 std::string(why.message()).c_str());
  }
}

void ZmqTransport::Settle(ZmqFlow* flow, const Status& status) {
  bool expected = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    outcomes_[FlowId(flow->target().priority, flow->target().peer)] = status;
    expected = stopping_;
  }
  opened_.notify_all();
  if (!status.ok()) {
    flow->Drop();
    if (!expected) {
      receiver_->OnFailure(flow->target().peer, status);
    }
  }
}

}  // namespace trepak
