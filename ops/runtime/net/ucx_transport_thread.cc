// What UCX's thread does.

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "ops/runtime/net/ucx_transport.h"

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{100};  // of the thread, between looks for work
// What is queued when all ends is given up when nothing moves for so long.
constexpr milliseconds kUcxFarewell{5000};
constexpr int kUcxRefusalsLogged = 5;

// What UcxWorker calls messages of a flow.
uint64_t LabelOf(uint8_t priority, uint32_t peer) { return uint64_t{priority} << 32 | peer; }
constexpr uint64_t kNoFlow = ~uint64_t{0};  // an answer

}  // namespace

void UcxTransport::Loop() {
  pthread_setname_np(pthread_self(), "trepak-ucx");
  while (true) {
    bool is_busy = TakeWork();
    is_busy = SendQueued() || is_busy;
    is_busy = worker_->Progress() || is_busy;
    Deliver();
    if (IsOver()) {
      break;
    }
    if (!is_busy) {
      Wait();
    }
  }
  worker_ = nullptr;
}

bool UcxTransport::TakeWork() {
  std::deque<Incoming> offers;
  std::deque<std::pair<FlowId, Message>> to_send;
  std::set<uint32_t> lost;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    offers.swap(offers_);
    to_send.swap(to_send_);
    lost.swap(lost_);
    awake_ = false;
  }
  for (const uint32_t peer : lost) {
    worker_->GiveUp(peer);
    gone_.insert(peer);
    for (auto& [id, sender] : senders_) {
      if (id.second == peer) {
        sender.Drop();
      }
    }
  }
  for (const Incoming& incoming : offers) {
    Accept(incoming);
  }
  for (auto& [id, message] : to_send) {
    if (gone_.count(id.second) == 0) {
      senders_.at(id).Enqueue(std::move(message));
    }
  }
  return !offers.empty() || !to_send.empty();
}

bool UcxTransport::SendQueued() {
  bool has_sent = false;
  for (auto& [id, sender] : senders_) {  // the highest priority first
    has_sent = sender.Proceed(worker_.get(), LabelOf(id.first, id.second)) || has_sent;
  }
  return has_sent;
}

void UcxTransport::Deliver() {
  std::deque<Message> answers, arrived;
  std::deque<std::pair<uint32_t, Status>> broken;
  answers.swap(answers_);
  arrived.swap(arrived_);
  broken.swap(broken_);
  for (const Message& answer : answers) {
    TakeAnswer(answer);
  }
  if (!arrived.empty()) {
    std::lock_guard<std::mutex> lock(receiving_);
    for (Message& message : arrived) {
      receiver_->OnMessage(std::move(message));
    }
  }
  for (const auto& [peer, status] : broken) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool is_expected = stopping_;
    lock.unlock();
    if (!is_expected) {
      OnFailure(peer, status);
    }
  }
}

bool UcxTransport::IsOver() {
  const Clock::time_point now = Clock::now();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopping_) {
      moved_at_ = now;
      return false;
    }
    if (!to_send_.empty()) {
      return false;
    }
  }
  const uint64_t sent = SentMessages();
  if (sent != sent_before_) {
    sent_before_ = sent;
    moved_at_ = now;
  }
  return (HasDrained() && worker_->HasFlushed()) || now - moved_at_ >= kUcxFarewell;
}

bool UcxTransport::HasDrained() const {
  return std::all_of(senders_.begin(), senders_.end(), [this](const auto& entry) {
    return entry.second.is_idle() || gone_.count(entry.first.second) != 0;
  });
}

uint64_t UcxTransport::SentMessages() const {
  uint64_t sent = 0;
  for (const auto& [id, sender] : senders_) {
    sent += sender.sent();
  }
  return sent;
}

void UcxTransport::Wait() {
  if (worker_->Arm()) {
    pollfd items[] = {{worker_->descriptor(), POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    poll(items, 2, static_cast<int>(kLookEvery.count()));
    if (items[1].revents != 0) {
      uint64_t woken = 0;
      [[maybe_unused]] const ssize_t read_bytes = read(wake_fd_, &woken, sizeof(woken));
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  awake_ = true;
}

void UcxTransport::Accept(const Incoming& incoming) {
  const UcxOffer& offer = incoming.offer;
  const bool is_on_this_host = offer.host == host_;
  const Status connected = worker_->Connect(incoming.peer, offer.address, is_on_this_host);
  if (!connected.ok()) {
    // The peer won't reach this rank either: it finds that out by itself.
    std::lock_guard<std::mutex> lock(mutex_);
    unreachable_.emplace(incoming.peer, connected);
    for (auto& [id, route] : routes_) {
      if (id.second == incoming.peer && route.way == Way::kUndecided) {
        Settle(&route, Way::kInner, connected);
      }
    }
    return;
  }
  UcxAnswer answer;
  answer.is_accepted = !offer.must_read || CanRead(offer);
  answer.address = my_address_;
  if (answer.is_accepted) {
    sequences_.try_emplace(offer.token, incoming.peer, incoming.priority);
  }
  worker_->Send(incoming.peer, 0, ToMessage(answer, offer.token), kNoFlow);
}

void UcxTransport::TakeAnswer(const Message& message) {
  const uint64_t token = message.header.token;
  UcxAnswer answer;
  Status status = FromMessage(message, &answer);
  FlowId id;
  bool is_on_this_host = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto route = Undecided(token);
    if (route == routes_.end()) {
      return;
    }
    id = route->first;
    is_on_this_host = route->second.is_on_this_host;
  }
  const bool is_accepted = status.ok() && answer.is_accepted;
  if (is_accepted) {  // without the lock: UCX has locks of its own
    status = worker_->Connect(id.second, answer.address, is_on_this_host);
    senders_.try_emplace(id, id.second, token);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const auto route = Undecided(token);
  if (route != routes_.end()) {
    Settle(&route->second, is_accepted && status.ok() ? Way::kUcx : Way::kInner, status);
  }
}

std::map<UcxTransport::FlowId, UcxTransport::Route>::iterator UcxTransport::Undecided(
    uint64_t token) {
  return std::find_if(routes_.begin(), routes_.end(), [token](const auto& entry) {
    return entry.second.way == Way::kUndecided && entry.second.token == token;
  });
}

bool UcxTransport::HasOffered(uint64_t token) const {
  return std::any_of(routes_.begin(), routes_.end(), [token](const auto& entry) {
    return entry.second.token != 0 && entry.second.token == token;
  });
}

void UcxTransport::Settle(Route* route, Way way, const Status& status) {
  route->way = way;
  if (!options_.only_where_faster) {  // else the other transport will do
    route->status = status;
  }
  settled_.notify_all();
}

bool UcxTransport::Expects(const Header& header) {
  if (header.kind != ucx::kAnswer) {
    return sequences_.count(header.token) != 0;
  }
  // Also one that comes too late, which is nobody's fault: TakeAnswer drops it.
  std::lock_guard<std::mutex> lock(mutex_);
  return HasOffered(header.token);
}

void UcxTransport::OnArrival(uint64_t number, Message message) {
  if (message.header.kind == ucx::kAnswer) {
    answers_.push_back(std::move(message));
    return;
  }
  const auto found = sequences_.find(message.header.token);
  if (found != sequences_.end()) {
    found->second.Add(number, std::move(message), &arrived_);
  }
}

void UcxTransport::OnRefusal(const Status& why) {
  if (refused_.fetch_add(1) < kUcxRefusalsLogged) {
    std::fprintf(stderr, "trepak: rank %u refused a message: %s\n", options_.rank,
                 std::string(why.message()).c_str());
  }
}

void UcxTransport::OnLost(const Header& header, const Status& status) {
  const auto found = sequences_.find(header.token);
  if (found != sequences_.end()) {
    const uint32_t peer = found->second.peer();
    broken_.emplace_back(peer,
                         Status(status).Annotate("the connection to rank " + std::to_string(peer) +
                                                 " over UCX was lost"));
  }
}

void UcxTransport::OnSent(uint64_t label) {
  if (label != kNoFlow) {
    senders_.at({static_cast<uint8_t>(label >> 32), static_cast<uint32_t>(label)}).OnSent();
  }
}

void UcxTransport::OnBroken(uint32_t peer, const Status& status) {
  broken_.emplace_back(peer, status);
}

}  // namespace trepak
