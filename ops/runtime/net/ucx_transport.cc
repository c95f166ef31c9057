#include "ops/runtime/net/ucx_transport.h"

#include <sodium.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Where a flow may go either way, a peer that has not answered by then is left to the other one.
constexpr milliseconds kAnswerPatience{5000};

// What goes behind the address of a process that has UCX.
constexpr std::string_view kHasUcx = "+ucx";

bool HasUcx(std::string_view address) {
  return address.size() >= kHasUcx.size() &&
         address.substr(address.size() - kHasUcx.size()) == kHasUcx;
}

// "tcp://10.0.0.1" of "tcp://10.0.0.1:40123".
std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

Status UcxTransport::Start(const Options& options, Receiver* receiver, const MakeInner& make_inner,
                           std::unique_ptr<UcxTransport>* transport) {
  std::unique_ptr<UcxTransport> made(new UcxTransport(options, receiver));
  TREPAK_RETURN_IF_ERROR(made->SetUp(make_inner));
  *transport = std::move(made);
  return OkStatus();
}

Status UcxTransport::SetUp(const MakeInner& make_inner) {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) {
    return UnavailableError("rank " + std::to_string(options_.rank) +
                            ": UCX can't be set up: " + std::strerror(errno));
  }
  UcxWorker::Options of_worker;
  of_worker.rank = options_.rank;
  of_worker.in_memory_only = options_.only_where_faster || options_.encrypt;
  const Status made = UcxWorker::Make(of_worker, this, &worker_);
  if (!made.ok() && !options_.only_where_faster) {
    return made;
  }
  my_address_ = made.ok() ? worker_->address() : "";
  TREPAK_RETURN_IF_ERROR(make_inner(this, &inner_));
  host_ = HostOf(inner_->address());
  if (made.ok()) {
    thread_ = std::thread([this] { Loop(); });
  }
  return OkStatus();
}

UcxTransport::~UcxTransport() {
  Stop();
  worker_ = nullptr;
  inner_ = nullptr;
  if (wake_fd_ >= 0) {
    close(wake_fd_);
  }
}

std::string UcxTransport::address() const {
  return inner_->address() + std::string(my_address_.empty() ? "" : kHasUcx);
}

void UcxTransport::Wake() {
  if (awake_) {
    return;
  }
  awake_ = true;
  const uint64_t one = 1;
  // A full counter has woken the thread already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

Status UcxTransport::Wants(const FlowTarget& target, bool* wants) const {
  const bool is_on_this_host = HostOf(target.address) == host_;
  *wants = !my_address_.empty() &&
           (!options_.only_where_faster || (is_on_this_host && HasUcx(target.address)));
  if (options_.encrypt && !is_on_this_host && !options_.only_where_faster) {
    return FailedPreconditionError(
        "rank " + std::to_string(target.peer) + " is on another host than rank " +
        std::to_string(options_.rank) +
        ", and UCX does not encrypt what travels there: choose the transport auto");
  }
  return OkStatus();
}

Status UcxTransport::Open(const FlowTarget& target, milliseconds deadline) {
  const Clock::time_point until = Clock::now() + deadline;
  bool wants = false;
  TREPAK_RETURN_IF_ERROR(Wants(target, &wants));
  FlowTarget over_inner = target;
  if (HasUcx(target.address)) {
    over_inner.address.resize(target.address.size() - kHasUcx.size());
  }
  TREPAK_RETURN_IF_ERROR(inner_->Open(over_inner, deadline));
  const FlowId id(target.priority, target.peer);
  if (!wants) {
    std::lock_guard<std::mutex> lock(mutex_);
    routes_[id].way = Way::kInner;
    return OkStatus();
  }
  return Agree(
      target, options_.only_where_faster ? std::min(until, Clock::now() + kAnswerPatience) : until);
}

Status UcxTransport::Agree(const FlowTarget& target, Clock::time_point deadline) {
  UcxOffer offer;
  randombytes_buf(&offer.token, sizeof(offer.token));
  offer.process = getpid();
  offer.must_read = options_.only_where_faster;
  offer.host = host_;
  offer.address = my_address_;
  std::unique_lock<std::mutex> lock(mutex_);
  Route& route = routes_[FlowId(target.priority, target.peer)];
  route.token = offer.token;
  route.is_on_this_host = HostOf(target.address) == host_;
  const auto* const token_at = &route.token;
  static_assert(sizeof(token_at) == sizeof(offer.token_at));
  std::memcpy(&offer.token_at, &token_at, sizeof(token_at));
  const auto unreachable = unreachable_.find(target.peer);
  // Peers that don't answer each cost some seconds, one after the other: the first one is enough.
  if (unreachable != unreachable_.end() || was_ignored_) {
    Settle(&route, Way::kInner,
           unreachable == unreachable_.end() ? OkStatus() : unreachable->second);
    return route.status;
  }
  lock.unlock();
  Message message = ToMessage(offer);
  message.header.sender = options_.rank;
  TREPAK_RETURN_IF_ERROR(inner_->Send(target.peer, target.priority, std::move(message)));
  lock.lock();
  const auto is_over = [&] {
    return stopping_ || route.way != Way::kUndecided || !route.status.ok();
  };
  if (!settled_.wait_until(lock, deadline, is_over)) {
    route.way = Way::kInner;
    was_ignored_ = options_.only_where_faster;
    return options_.only_where_faster
               ? OkStatus()
               : DeadlineExceededError(
                     "rank " + std::to_string(options_.rank) + " waited for rank " +
                     std::to_string(target.peer) +
                     " to answer over UCX: name transports that work in UCX_TLS on all ranks, or "
                     "choose the transport flows");
  }
  return stopping_ && route.way == Way::kUndecided
             ? CancelledError("rank " + std::to_string(options_.rank) + " stopped its flows")
             : route.status;
}

Status UcxTransport::Send(uint32_t peer, uint8_t priority, Message message) {
  const FlowId id(priority, peer);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto route = routes_.find(id);
    if (route == routes_.end() || route->second.way == Way::kUndecided) {
      return FailedPreconditionError("there is no flow to rank " + std::to_string(peer) +
                                     " of priority " + std::to_string(priority));
    }
    TREPAK_RETURN_IF_ERROR(route->second.status);
    if (route->second.way == Way::kUcx) {
      to_send_.emplace_back(id, std::move(message));
      Wake();
      return OkStatus();
    }
  }
  return inner_->Send(peer, priority, std::move(message));
}

bool UcxTransport::GoesBesideFlow(uint32_t peer, uint8_t priority) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto route = routes_.find(FlowId(priority, peer));
  return route != routes_.end() && route->second.way == Way::kUcx;
}

void UcxTransport::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    settled_.notify_all();
    Wake();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  if (inner_ != nullptr) {
    inner_->Stop();
  }
}

void UcxTransport::OnMessage(Message message) {
  if (message.header.kind != ucx::kOffer) {
    std::lock_guard<std::mutex> lock(receiving_);
    receiver_->OnMessage(std::move(message));
    return;
  }
  Incoming incoming;
  incoming.peer = message.header.sender;
  incoming.priority = message.header.priority;
  const Status status = FromMessage(message, &incoming.offer);
  if (!status.ok()) {
    OnFailure(incoming.peer, status);
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (my_address_.empty() || stopping_) {
    return;  // nobody is there to accept it, or not for long
  }
  offers_.push_back(std::move(incoming));
  Wake();
}

void UcxTransport::OnFailure(uint32_t peer, const Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Break(peer, status);
  }
  std::lock_guard<std::mutex> lock(receiving_);
  receiver_->OnFailure(peer, status);
}

void UcxTransport::OnTick() {
  std::lock_guard<std::mutex> lock(receiving_);
  receiver_->OnTick();
}

void UcxTransport::Break(uint32_t peer, const Status& status) {
  for (auto& [id, route] : routes_) {
    if (id.second == peer && route.status.ok()) {
      route.status = status;
    }
  }
  lost_.insert(peer);
  settled_.notify_all();
  Wake();
}

}  // namespace trepak
