#include "ops/runtime/parameters/parameter_client.h"

#include "ops/runtime/parameters/parameter_messages.h"
#include "ops/runtime/parameters/summation.h"

namespace trepak {

Status ParameterClient::Register(uint32_t key, const std::string& name, ElementType type,
                                 int64_t elements) {
  if (SizeOf(type) == 0 || elements < 0) {
    return InvalidArgumentError("the variable " + name + " has no elements that can be summed");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = variables_.find(key);
  if (found != variables_.end()) {
    Variable& known = found->second;
    if (known.type != type || known.elements != elements) {
      return AlreadyExistsError("variable " + std::to_string(key) + " is " + known.name + " with " +
                                std::to_string(known.elements) + " elements; it can't be " + name +
                                " with " + std::to_string(elements));
    }
    known.name = name;
    return OkStatus();
  }
  Variable& variable = variables_[key];
  variable.name = name;
  variable.type = type;
  variable.elements = elements;
  variable.slices = Partition(key, elements, partition_);
  return OkStatus();
}

ParameterClient::Variable* ParameterClient::Find(uint32_t key, Status* status) {
  *status = error();
  if (!status->ok()) {
    return nullptr;
  }
  const auto found = variables_.find(key);
  if (found == variables_.end()) {
    *status = NotFoundError(Whose(key) + " is not known");
    return nullptr;
  }
  return &found->second;
}

Status ParameterClient::Push(uint32_t key, Precedence precedence, Payload values, double factor,
                             bool pull) {
  return Ask(key, precedence, parameters::kPush, std::move(values), factor, pull);
}

Status ParameterClient::Assign(uint32_t key, Precedence precedence, Payload values) {
  return Ask(key, precedence, parameters::kAssign, std::move(values), 1.0, true);
}

Status ParameterClient::Change(uint32_t key, Precedence precedence, Payload values) {
  return Ask(key, precedence, parameters::kDelta, std::move(values), 1.0, true);
}

Status ParameterClient::Fetch(uint32_t key, Precedence precedence) {
  return Ask(key, precedence, parameters::kPull, Payload(), 1.0, true);
}

Status ParameterClient::Ask(uint32_t key, Precedence precedence, MessageKind kind, Payload values,
                            double factor, bool pull) {
  // Held while sending, which does not block: a round's slices must leave before the next one's.
  std::lock_guard<std::mutex> lock(mutex_);
  Status status;
  Variable* const variable = Find(key, &status);
  if (variable == nullptr) {
    return status;
  }
  const size_t bytes = static_cast<size_t>(variable->elements) * SizeOf(variable->type);
  if (kind != parameters::kPull && values.size() != bytes) {
    return InvalidArgumentError(Me() + " pushed " + std::to_string(values.size()) + " bytes for " +
                                variable->name + ", which has " +
                                std::to_string(variable->elements) + " elements");
  }
  if (!variable->last.is_delivered() && kind != parameters::kPush) {
    return FailedPreconditionError(Me() + " asked for " + variable->name +
                                   " twice at once: ask in one thread at a time");
  }
  TREPAK_RETURN_IF_ERROR(variable->last.CheckDelivered(Whose(key)));
  variable->last.Begin(variable->slices.size(), bytes);
  variable->asked = pull;
  variable->factor = factor;
  variable->has_rounds = kind == parameters::kPush;
  ++variable->rounds;
  return SendSlices(key, precedence, *variable, kind, pull ? parameters::kWantsAnswer : 0, values);
}

Status ParameterClient::Pull(uint32_t key, Precedence precedence) {
  std::lock_guard<std::mutex> lock(mutex_);
  Status status;
  Variable* const variable = Find(key, &status);
  if (variable == nullptr) {
    return status;
  }
  if (variable->rounds == 0 || variable->asked) {
    return FailedPreconditionError(Me() + " pulled " + variable->name +
                                   " without having pushed it, or twice");
  }
  variable->asked = true;
  return SendSlices(key, precedence, *variable, parameters::kPull, 0, Payload());
}

Status ParameterClient::SendSlices(uint32_t key, Precedence precedence, const Variable& variable,
                                   MessageKind kind, uint8_t flags, const Payload& values) {
  const size_t element = SizeOf(variable.type);
  for (size_t index = 0; index < variable.slices.size(); ++index) {
    const Slice& slice = variable.slices[index];
    Message message;
    message.header.kind = kind;
    message.header.flags = flags;
    message.header.key = key;
    message.header.slice = static_cast<uint32_t>(index);
    message.header.round = variable.rounds - 1;
    if (kind != parameters::kPull) {
      message.header.type = variable.type;
      message.payload = values.Part(slice.offset * element, slice.elements * element);
    }
    TREPAK_RETURN_IF_ERROR(Send(slice.server, precedence, std::move(message)));
  }
  return OkStatus();
}

GradientRound* ParameterClient::FindRound(uint32_t key) {
  const auto found = variables_.find(key);
  return found == variables_.end() ? nullptr : &found->second.last;
}

std::string ParameterClient::Whose(uint32_t key) const {
  const auto found = variables_.find(key);
  return Me() + ": " +
         (found == variables_.end() ? "variable " + std::to_string(key) : found->second.name);
}

size_t ParameterClient::slices(uint32_t key) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = variables_.find(key);
  return found == variables_.end() ? 0 : found->second.slices.size();
}

Status ParameterClient::Handle(Message message) {
  const Header& header = message.header;
  GradientRound::Delivery delivery;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = variables_.find(header.key);
    if (header.kind != parameters::kAnswer || found == variables_.end()) {
      return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                  " sent something that nobody asked for");
    }
    Variable& variable = found->second;
    const size_t element = SizeOf(variable.type);
    if (!variable.last.Misses(header.slice) ||
        (variable.has_rounds && header.round + 1 != variable.rounds) ||
        header.type != variable.type ||
        message.payload.size() != variable.slices[header.slice].elements * element ||
        header.sender != variable.slices[header.slice].server) {
      return InternalError("the answer for slice " + std::to_string(header.slice) + " of " +
                           variable.name + ", round " + std::to_string(header.round) +
                           ", from rank " + std::to_string(header.sender) +
                           " is not the one that was asked for");
    }
    Scale(variable.type, message.payload.size(), variable.factor, message.payload.data(),
          static_cast<char*>(variable.last.result().mutable_data()) +
              variable.slices[header.slice].offset * element);
    delivery = variable.last.Arrive(header.slice);
  }
  delivery.Run();
  return OkStatus();
}

Status ParameterClient::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The servers know better whom they wait for: they shall be the first to complain.
  const auto deadline = options().deadline + std::chrono::seconds(1);
  for (const auto& [key, variable] : variables_) {
    if (!variable.last.is_awaited() || now - variable.last.since() < deadline) {
      continue;
    }
    for (size_t index = 0; index < variable.slices.size(); ++index) {
      if (variable.last.Misses(index)) {
        return DeadlineExceededError("waited " + std::to_string(options().deadline.count() / 1000) +
                                     " s for " + variable.name + " from the server on rank " +
                                     std::to_string(variable.slices[index].server));
      }
    }
  }
  return OkStatus();
}

void ParameterClient::Failed(const Status& status) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, variable] : variables_) {
      if (Callback waiting = variable.last.Abandon()) {
        callbacks.push_back(std::move(waiting));
      }
    }
  }
  for (const Callback& callback : callbacks) {
    callback(status, Payload());
  }
}

}  // namespace trepak
