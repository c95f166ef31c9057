#include "ops/geryon_exchange.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <random>

#include "horovod_ext/runtime/zmq_transport.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace trepak {
namespace {

constexpr int kDscp[] = {46, 0};  // by priority: expedited forwarding, best effort
constexpr std::chrono::milliseconds kDeadline{60'000};

// Flags of an answer's first message, which says what the tensor is; its content comes next.
constexpr uint8_t kDescription = 1;
constexpr uint8_t kDead = 2;
constexpr uint8_t kNotCarried = 4;
constexpr uint8_t kFailed = 8;  // the payload says why, the header's key is the error's code

std::atomic<uint64_t> bytes_sent[std::size(kDscp)];  // by priority

bool HasContent(const Found& found) {
  return found.status.ok() && found.carried && !found.is_dead && found.tensor.TotalBytes() > 0;
}

Payload Copied(std::string_view bytes) {
  Payload payload = Payload::Allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(payload.mutable_data()));
  return payload;
}

std::string_view ViewOf(const Payload& payload) {
  return {static_cast<const char*>(payload.data()), payload.size()};
}

Message DescriptionOf(const Found& found) {
  Message message;
  message.header.kind = MessageKind::kAnswer;
  message.header.flags = kDescription | (found.is_dead ? kDead : 0) |
                         (found.carried ? 0 : kNotCarried) | (found.status.ok() ? 0 : kFailed);
  if (!found.status.ok()) {
    message.header.key = static_cast<uint32_t>(found.status.raw_code());
    message.payload = Copied(found.status.message());
  } else if (found.carried && !found.is_dead) {
    tensorflow::TensorProto description;
    description.set_dtype(found.tensor.dtype());
    found.tensor.shape().AsProto(description.mutable_tensor_shape());
    message.payload = Copied(description.SerializeAsString());
  }
  return message;
}

// Allocates the tensor. Fails for a description that DescriptionOf can't have made.
Status ReadDescription(const Message& message, Found* found) {
  const uint8_t flags = message.header.flags;
  const std::string_view bytes = ViewOf(message.payload);
  if ((flags & kFailed) != 0) {
    found->status = absl::Status(static_cast<absl::StatusCode>(message.header.key), bytes);
    return OkStatus();
  }
  found->is_dead = (flags & kDead) != 0;
  found->carried = (flags & kNotCarried) == 0;
  if (found->is_dead || !found->carried) {
    return OkStatus();
  }
  tensorflow::TensorProto description;
  tensorflow::TensorShape shape;
  if (!description.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      !tensorflow::DataTypeCanUseMemcpy(description.dtype()) ||
      !tensorflow::TensorShape::BuildTensorShape(description.tensor_shape(), &shape).ok()) {
    return InvalidArgumentError("an answer describes no tensor that can travel");
  }
  found->tensor = tensorflow::Tensor(description.dtype(), shape);
  return OkStatus();
}

absl::Status Unavailable(const Status& status) {
  return absl::UnavailableError("trepak's flows: " + std::string(status.message()));
}

}  // namespace

std::string ExchangeAddress::Encode() const {
  std::string bytes(sizeof(id), '\0');
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes + std::string(secret.begin(), secret.end()) + transport;
}

bool ExchangeAddress::Decode(std::string_view bytes) {
  if (bytes.size() <= sizeof(id) + secret.size()) {
    return false;
  }
  std::memcpy(&id, bytes.data(), sizeof(id));
  std::copy_n(bytes.begin() + sizeof(id), secret.size(), secret.begin());
  transport = std::string(bytes.substr(sizeof(id) + secret.size()));
  return true;
}

TensorExchange::TensorExchange(Finder finder, Scheduler scheduler)
    : finder_(std::move(finder)), scheduler_(std::move(scheduler)) {
  map_table_.SetCoarse();
}

TensorExchange::~TensorExchange() {
  if (transport_ != nullptr) {
    transport_->Stop();
  }
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
  request.header.kind = MessageKind::kPull;
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    number = next_number_++;
    asked_[number] = {where.id, std::move(callback), {}};
  }
  request.header.round = number;
  std::string asked(sizeof(step), '\0');
  std::memcpy(asked.data(), &step, sizeof(step));
  request.payload = Copied(asked + key);
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
    }
  }
  if (!status.ok()) {
    Fail(task, status);
  } else if (must_open) {
    scheduler_([this, task] { Open(task); });
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
    const Status status = transport_->Open(target, kDeadline);
    if (!status.ok()) {
      Fail(task, status);
      return;
    }
    flows.push_back(std::make_unique<Flow>(transport_.get(), here_.id, task, target.priority));
  }
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[task];
    peer.flows = std::move(flows);
    Message introduction;
    introduction.header.kind = MessageKind::kAssign;
    introduction.payload = Copied(here_.Encode());
    status = peer.flows[0]->Send(std::move(introduction));
    for (auto& [priority, message] : peer.waiting) {
      if (status.ok()) {
        status = peer.flows[priority]->Send(std::move(message));
      }
    }
    peer.waiting.clear();
  }
  if (!status.ok()) {
    Fail(task, status);
  }
}

void TensorExchange::Fail(uint32_t task, const Status& status) {
  std::vector<uint64_t> numbers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[task];
    if (peer.failure.ok()) {
      peer.failure = status;
    }
    peer.waiting.clear();
    for (const auto& [number, asked] : asked_) {
      if (asked.task == task) {
        numbers.push_back(number);
      }
    }
  }
  for (const uint64_t number : numbers) {
    Forget(number, Unavailable(status));
  }
}

void TensorExchange::OnFailure(uint32_t task, const Status& status) { Fail(task, status); }

void TensorExchange::OnMessage(Message message) {
  Status status = sequences_.Check(message.header);
  if (status.ok()) {
    switch (message.header.kind) {
      case MessageKind::kAssign:
        status = TakeAddress(message);
        break;
      case MessageKind::kPull:
        status = Answer(message);
        break;
      case MessageKind::kAnswer:
        status = TakeAnswer(message);
        break;
      default:
        status = InvalidArgumentError("a task sent something that nobody asked for");
    }
  }
  if (!status.ok()) {
    Fail(message.header.sender, status);
  }
}

Status TensorExchange::TakeAddress(const Message& message) {
  ExchangeAddress where;
  if (!where.Decode(ViewOf(message.payload)) || where.id != message.header.sender) {
    return InvalidArgumentError("a task's address is none, or another's");
  }
  Know(where);
  return OkStatus();
}

Status TensorExchange::Answer(const Message& request) {
  const uint32_t task = request.header.sender;
  const uint64_t number = request.header.round;
  const std::string_view asked = ViewOf(request.payload);
  int64_t step = 0;
  if (asked.size() <= sizeof(step)) {
    return InvalidArgumentError("a task asked for nothing");
  }
  std::memcpy(&step, asked.data(), sizeof(step));
  const std::string key(asked.substr(sizeof(step)));
  finder_(step, key, [this, task, number, key](const Found& found) {
    std::vector<Message> messages;
    messages.push_back(DescriptionOf(found));
    if (HasContent(found)) {
      // A reference to the tensor, which keeps its memory and keeps others from writing to it.
      auto tensor = std::make_shared<tensorflow::Tensor>(found.tensor);
      Message content;
      content.header.kind = MessageKind::kAnswer;
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

uint8_t TensorExchange::PriorityOf(const std::string& key, const tensorflow::Tensor& tensor) {
  constexpr int kMatrix = 2;
  const bool connected = tensor.dims() == kMatrix;
  tensorflow::Rendezvous::ParsedKey parsed;
  if (!tensorflow::Rendezvous::ParseKey(key, &parsed).ok()) {
    return 0;  // no parameter
  }
  // An edge may carry tensors of other shapes in another function.
  const std::string name = std::string(parsed.edge_name) + (connected ? "#matrix" : "");
  // Nothing but what this very line records has the name.
  [[maybe_unused]] const Status status = map_table_.Record(name, {1, connected});
  return map_table_.PriorityOf(name);
}

Status TensorExchange::TakeAnswer(const Message& message) {
  const uint64_t number = message.header.round;
  Found found;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto asked = asked_.find(number);
    if (asked == asked_.end()) {
      return OkStatus();  // it was forgotten meanwhile
    }
    if (asked->second.task != message.header.sender) {
      return InvalidArgumentError("task " + std::to_string(message.header.sender) +
                                  " answers what another was asked for");
    }
    Found& known = asked->second.found;
    if ((message.header.flags & kDescription) != 0) {
      TREPAK_RETURN_IF_ERROR(ReadDescription(message, &known));
      if (HasContent(known)) {
        return OkStatus();  // which comes next
      }
    } else {
      if (known.tensor.TotalBytes() != message.payload.size()) {
        return InvalidArgumentError("a tensor of " + std::to_string(known.tensor.TotalBytes()) +
                                    " bytes came with " + std::to_string(message.payload.size()));
      }
      std::memcpy(known.tensor.data(), message.payload.data(), message.payload.size());
    }
    found = known;
  }
  Finish(number, found);
  return OkStatus();
}

std::vector<uint64_t> TensorExchange::BytesByPriority() {
  return std::vector<uint64_t>(std::begin(bytes_sent), std::end(bytes_sent));
}

}  // namespace trepak
