#include "ops/runtime/net/zmq_transport.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};

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
  listener_ = nullptr;
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
  // ZeroMQ's default, 1,023 sockets, would bound the flows; what is left to bound them are files.
  zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, zmq_ctx_get(context_, ZMQ_SOCKET_LIMIT));
  listener_ = std::make_unique<ZmqListener>(options_, receiver_);
  return listener_->Listen(context_);
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
  to_open_[id] = {target, Clock::now() + deadline};
  Wake();
  const auto over = [&] { return outcomes_.count(id) != 0 || stopping_; };
  const bool in_time = opened_.wait_for(lock, deadline, over);
  if (in_time && outcomes_.count(id) == 0) {
    return CancelledError("rank " + std::to_string(options_.rank) + " stopped its flows");
  }
  if (!in_time) {
    const auto failure = failures_.find(id);
    return DeadlineExceededError(
        "rank " + std::to_string(options_.rank) + " waited " + std::to_string(deadline.count()) +
        " ms for rank " + std::to_string(target.peer) + " at " + target.address +
        " to accept a flow" + (failure == failures_.end() ? "" : ": " + failure->second));
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
  Clock::time_point last_tick = Clock::now();
  uint64_t sent_before = 0;
  int silent_ticks = 0;  // without a message sent; a machine that stood still has just one
  while (true) {
    Wait(Patience());
    if (listener_->is_due()) {
      listener_->Proceed();
    }
    TakeWork();
    for (auto& [id, flow] : flows_) {  // the highest priority first
      if (flow->is_due()) {
        Proceed(flow.get());
      }
    }
    const Clock::time_point now = Clock::now();
    if (now - last_tick >= kTick) {
      last_tick = now;
      receiver_->OnTick();
      // A descriptor is silent about what ZeroMQ had already read when a signal interrupted it.
      listener_->set_due();
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
    } else if ((to_send_.empty() && IsIdle()) || silent_ticks * kTick >= ZmqFlow::kFarewell) {
      break;
    }
  }
  listener_->Close();
  flows_.clear();
}

void ZmqTransport::Wait(std::chrono::milliseconds patience) {
  items_.assign({{wake_fd_, POLLIN, 0}});
  const auto add = [&](const auto& descriptors) {
    for (const int descriptor : descriptors) {
      items_.push_back({descriptor, POLLIN, 0});
    }
  };
  add(listener_->descriptors());
  for (const auto& [id, flow] : flows_) {
    add(flow->descriptors());
  }
  poll(items_.data(), items_.size(), static_cast<int>(patience.count()));
  auto item = items_.begin() + 1;
  const auto is_readable = [&](size_t descriptors) {
    bool readable = false;
    for (; descriptors > 0; --descriptors, ++item) {
      readable = readable || item->revents != 0;
    }
    return readable;
  };
  if (is_readable(ZmqListener::kDescriptors) || listener_->is_watching()) {
    listener_->set_due();
  }
  for (auto& [id, flow] : flows_) {
    if (is_readable(ZmqFlow::kDescriptors) || flow->is_watching()) {
      flow->set_due();
    }
  }
  if (items_.front().revents != 0) {
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t read_bytes = read(wake_fd_, &woken, sizeof(woken));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  awake_ = true;
}

std::chrono::milliseconds ZmqTransport::Patience() const {
  bool is_due = listener_->is_due();
  bool is_watching = listener_->is_watching();
  for (const auto& [id, flow] : flows_) {
    is_due = is_due || flow->is_due();
    is_watching = is_watching || flow->is_watching();
  }
  return is_due ? std::chrono::milliseconds(0) : is_watching ? ZmqListener::kWatchEvery : kTick;
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
  std::map<FlowId, Opening> to_open;
  std::deque<std::pair<FlowId, Message>> to_send;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    to_open.swap(to_open_);
    to_send.swap(to_send_);
    awake_ = false;
  }
  for (const auto& [id, opening] : to_open) {
    ZmqFlow::Options flow;
    flow.secret = opening.target.secret.value_or(options_.secret);
    flow.rank = options_.rank;
    flow.encrypt = options_.encrypt;
    flow.silence = options_.silence;
    flow.deadline = opening.deadline;
    flows_[id] = std::make_unique<ZmqFlow>(context_, opening.target, flow);
  }
  for (auto& [id, message] : to_send) {
    ZmqFlow* const flow = flows_.at(id).get();
    if (!flow->has_ended()) {
      flow->Enqueue(std::move(message));
    }
  }
}

void ZmqTransport::Proceed(ZmqFlow* flow) {
  const bool was_open = flow->is_open();
  const Status status = flow->Proceed();
  if (!status.ok() || flow->is_open() != was_open) {
    Settle(flow, status);
  } else if (!flow->is_open() && !flow->failure().empty()) {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_[FlowId(flow->target().priority, flow->target().peer)] = flow->failure();
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
