#include "ops/geryon_server/geryon_exchange.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <random>
#include <set>

#include "ops/runtime/net/zmq_transport.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/platform/env.h"

namespace trepak {
namespace {

constexpr int kDscp[] = {46, 0};  // by priority: expedited forwarding, best effort
constexpr std::chrono::milliseconds kOpenDeadline{10'000};
constexpr std::chrono::seconds kSilence{30};  // of a task that owes an answer; longer than opening
constexpr std::chrono::seconds kGreetAgain{5};

std::atomic<uint64_t> bytes_sent[std::size(kDscp)];  // by priority

absl::Status Unavailable(const Status& status) {
  return absl::UnavailableError("trepak's flows: " + std::string(status.message()));
}

// Coarse categorization (section III.C): matrices, as fully connected layers have, come second.
uint8_t PriorityOf(const std::string& key, const tensorflow::Tensor& tensor) {
  constexpr int kMatrix = 2;
  tensorflow::Rendezvous::ParsedKey parsed;
  const bool is_parameter = tensorflow::Rendezvous::ParseKey(key, &parsed).ok();
  return is_parameter && tensor.dims() == kMatrix ? 1 : 0;
}

}  // namespace

TensorExchange::TensorExchange(Finder finder, Scheduler scheduler)
    : finder_(std::move(finder)), scheduler_(std::move(scheduler)) {}

TensorExchange::~TensorExchange() {
  if (transport_ != nullptr) {
    transport_->Stop();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  opened_.wait(lock, [this] { return opening_ == 0; });
}

Status TensorExchange::Start(const std::string& host, Finder finder, Scheduler scheduler,
                             std::unique_ptr<TensorExchange>* exchange) {
  std::unique_ptr<TensorExchange> made(new TensorExchange(std::move(finder), std::move(scheduler)));
  made->here_.secret = MakeSecret();
  made->here_.id = std::random_device()();
  ZmqTransport::Options options;
  options.rank = made->here_.id;
  options.host = host;
  options.secret = made->here_.secret;
  options.dscp = kDscp[0];
  std::unique_ptr<ZmqTransport> transport;
  // Nobody can send before this task's address is known, that is, before Start returns.
  TREPAK_RETURN_IF_ERROR(ZmqTransport::Start(options, made.get(), &transport));
  made->here_.transport = transport->address();
  made->transport_ = std::move(transport);
  *exchange = std::move(made);
  return OkStatus();
}

uint64_t TensorExchange::Fetch(const ExchangeAddress& where, int64_t step, const std::string& key,
                               Callback callback) {
  Message request;
  request.header.kind = wire::kRequest;
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    number = next_number_++;
    asked_[number] = {where.id, std::move(callback), {}};
  }
  request.header.round = number;
  std::string asked(sizeof(step), '\0');
  std::memcpy(asked.data(), &step, sizeof(step));
  request.payload = Payload::Copy(asked + key);
  Know(where);
  std::vector<Message> messages;
  messages.push_back(std::move(request));
  Send(where.id, 0, std::move(messages));
  return number;
}

void TensorExchange::Forget(uint64_t number, const absl::Status& status) {
  Found found;
  found.status = status;
  Finish(number, found);
}

void TensorExchange::Finish(uint64_t number, const Found& found) {
  Callback callback;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto asked = asked_.find(number);
    if (asked == asked_.end()) {
      return;
    }
    callback = std::move(asked->second.callback);
    asked_.erase(asked);
  }
  scheduler_([callback = std::move(callback), found] { callback(found); });
}

void TensorExchange::Know(const ExchangeAddress& where) {
  std::lock_guard<std::mutex> lock(mutex_);
  peers_[where.id].where = where;
}

void TensorExchange::Send(uint32_t task, uint8_t priority, std::vector<Message> messages) {
  Status status;
  bool must_open = false;
  {
    // Held while sending, which does not block: the messages must not be parted.
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[task];
    status = peer.failure;
    for (Message& message : messages) {
      if (!status.ok()) {
        break;
      }
      if (peer.flows.empty()) {
        peer.waiting.emplace_back(priority, std::move(message));
      } else {
        status = peer.flows[priority]->Send(std::move(message));
      }
    }
    if (status.ok() && peer.flows.empty() && !peer.opening) {
      peer.opening = must_open = true;
      ++opening_;
    }
  }
  if (!status.ok()) {
    Fail(task, status);
  } else if (must_open) {
    // It waits, so it has a thread of its own.
    tensorflow::Env::Default()->SchedClosure([this, task] {
      Open(task);
      std::lock_guard<std::mutex> lock(mutex_);
      --opening_;
      opened_.notify_all();
    });
  }
}

void TensorExchange::Open(uint32_t task) {
  ExchangeAddress where;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    where = peers_[task].where;
  }
  std::vector<std::unique_ptr<Flow>> flows;
  for (const int dscp : kDscp) {
    FlowTarget target;
    target.peer = task;
    target.priority = static_cast<uint8_t>(flows.size());
    target.dscp = dscp;
    target.address = where.transport;
    target.secret = where.secret;
    const Status status = transport_->Open(target, kOpenDeadline);
    if (!status.ok()) {
      Fail(task, status);
      return;
    }
    flows.push_back(std::make_unique<Flow>(transport_.get(), here_.id, task, target.priority));
  }
  Status status;
  std::vector<Message> requests;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[task];
    peer.flows = std::move(flows);
    peer.heard = Clock::now();
    status = peer.flows[0]->Send(wire::Introduction(here_, true));
    for (auto& [priority, message] : peer.waiting) {
      if (status.ok()) {
        status = peer.flows[priority]->Send(std::move(message));
      }
    }
    peer.waiting.clear();
    requests.swap(peer.requests);
  }
  for (const Message& request : requests) {
    if (status.ok()) {
      status = Answer(request);
    }
  }
  if (!status.ok()) {
    Fail(task, status);
  }
}

void TensorExchange::Introduce(uint32_t task, bool asks) {
  std::vector<Message> messages;
  messages.push_back(wire::Introduction(here_, asks));
  Send(task, 0, std::move(messages));
}

void TensorExchange::Fail(uint32_t task, const Status& status) {
  std::vector<uint64_t> numbers;
  Found found;
  found.lost = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[task];
    if (peer.failure.ok()) {
      peer.failure = status;
    }
    peer.waiting.clear();
    peer.requests.clear();
    // A peer that was never heard of has looked for nothing: what it has can be had by gRPC.
    found.carried = peer.ever_heard;
    for (const auto& [number, asked] : asked_) {
      if (asked.task == task) {
        numbers.push_back(number);
      }
    }
  }
  if (found.carried) {
    found.status = Unavailable(status);
  }
  for (const uint64_t number : numbers) {
    Finish(number, found);
  }
}

void TensorExchange::OnTick() {
  const Clock::time_point now = Clock::now();
  std::set<uint32_t> silent;
  std::set<uint32_t> to_greet;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [number, asked] : asked_) {
      Peer& peer = peers_[asked.task];
      if (peer.flows.empty()) {
        continue;  // opening them has a deadline of its own
      }
      if (now - peer.heard > kSilence) {
        silent.insert(asked.task);
      } else if (now - peer.heard > kGreetAgain && now - peer.greeted > kGreetAgain) {
        peer.greeted = now;
        to_greet.insert(asked.task);
      }
    }
  }
  for (const uint32_t task : to_greet) {
    Introduce(task, true);
  }
  for (const uint32_t task : silent) {
    Fail(task, DeadlineExceededError("a task that owes tensors has said nothing for " +
                                     std::to_string(kSilence.count()) + " s"));
  }
}

void TensorExchange::OnFailure(uint32_t task, const Status& status) { Fail(task, status); }

void TensorExchange::OnMessage(Message message) {
  const uint32_t task = message.header.sender;
  Status status = sequences_.Check(message.header);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peers_[task].heard = Clock::now();
    peers_[task].ever_heard = true;
  }
  if (status.ok()) {
    switch (message.header.kind) {
      case wire::kAddress:
        status = TakeAddress(message);
        break;
      case wire::kRequest:
        status = TakeRequest(std::move(message));
        break;
      case wire::kTensor:
        status = TakeAnswer(message);
        break;
      default:
        status = InvalidArgumentError("a task sent something that nobody asked for");
    }
  }
  if (!status.ok()) {
    Fail(task, status);
  }
}

Status TensorExchange::TakeAddress(const Message& message) {
  ExchangeAddress where;
  if (!where.Decode(message.payload.view()) || where.id != message.header.sender) {
    return InvalidArgumentError("a task's address is none, or another's");
  }
  Know(where);
  if ((message.header.flags & wire::kAsks) != 0) {
    Introduce(where.id, false);
  }
  return OkStatus();
}

Status TensorExchange::TakeRequest(Message request) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[request.header.sender];
    if (peer.flows.empty()) {
      peer.requests.push_back(std::move(request));
      return OkStatus();
    }
  }
  return Answer(request);
}

Status TensorExchange::Answer(const Message& request) {
  const uint32_t task = request.header.sender;
  const uint64_t number = request.header.round;
  const std::string_view asked = request.payload.view();
  int64_t step = 0;
  if (asked.size() <= sizeof(step)) {
    return InvalidArgumentError("a task asked for nothing");
  }
  std::memcpy(&step, asked.data(), sizeof(step));
  const std::string key(asked.substr(sizeof(step)));
  finder_(step, key, [this, task, number, key](const Found& found) {
    std::vector<Message> messages;
    messages.push_back(wire::DescriptionOf(found));
    if (wire::HasContent(found)) {
      // A reference to the tensor, which keeps its memory and keeps others from writing to it.
      auto tensor = std::make_shared<tensorflow::Tensor>(found.tensor);
      Message content;
      content.header.kind = wire::kTensor;
      content.payload = Payload(tensor->data(), tensor->TotalBytes(), tensor);
      messages.push_back(std::move(content));
    }
    const uint8_t priority = PriorityOf(key, found.tensor);
    for (Message& message : messages) {
      message.header.round = number;
    }
    bytes_sent[priority] += messages.back().payload.size();
    Send(task, priority, std::move(messages));
  });
  return OkStatus();
}

Status TensorExchange::TakeAnswer(const Message& message) {
  const uint64_t number = message.header.round;
  const bool describes = (message.header.flags & wire::kDescription) != 0;
  Found found;
  // Memory is allocated and filled without the lock, for which others' urgent requests wait.
  if (describes) {
    TREPAK_RETURN_IF_ERROR(wire::ReadDescription(message, &found));
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto asked = asked_.find(number);
    if (asked == asked_.end()) {
      return OkStatus();  // it was forgotten meanwhile
    }
    if (asked->second.task != message.header.sender) {
      return InvalidArgumentError("a task answers what another was asked for");
    }
    if (describes && wire::HasContent(found)) {
      asked->second.found = found;
      return OkStatus();  // its content comes next
    }
    if (!describes) {
      found = asked->second.found;
    }
  }
  if (!describes) {
    if (found.tensor.TotalBytes() != message.payload.size()) {
      return InvalidArgumentError("a tensor of " + std::to_string(found.tensor.TotalBytes()) +
                                  " bytes came with " + std::to_string(message.payload.size()));
    }
    std::memcpy(found.tensor.data(), message.payload.data(), message.payload.size());
  }
  Finish(number, found);
  return OkStatus();
}

std::vector<uint64_t> TensorExchange::BytesByPriority() {
  return std::vector<uint64_t>(std::begin(bytes_sent), std::end(bytes_sent));
}

}  // namespace trepak
