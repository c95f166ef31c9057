#include "ops/runtime/parameters/parameter_client.h"

#include <optional>

#include "ops/runtime/parameters/parameter_messages.h"
#include "ops/runtime/parameters/summation.h"

namespace trepak {

ParameterClient::State* ParameterClient::Find(uint32_t key) {
  const auto found = states_.find(key);
  if (found != states_.end()) {
    return &found->second;
  }
  const std::optional<Variable> variable = table_->Find(key);
  if (!variable.has_value()) {
    return nullptr;
  }
  State& state = states_[key];
  state.variable = *variable;
  state.slices = Partition(key, static_cast<int64_t>(variable->elements), partition_);
  return &state;
}

ParameterClient::State* ParameterClient::Find(uint32_t key, Status* status) {
  *status = error();
  State* const state = status->ok() ? Find(key) : nullptr;
  if (status->ok() && state == nullptr) {
    *status = NotFoundError(Whose(key) + " is not known");
  }
  return state;
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
  State* const state = Find(key, &status);
  if (state == nullptr) {
    return status;
  }
  const Variable& variable = state->variable;
  const size_t bytes = variable.bytes();
  if (kind != parameters::kPull && values.size() != bytes) {
    return InvalidArgumentError(Me() + " pushed " + std::to_string(values.size()) + " bytes for " +
                                variable.name + ", which has " + std::to_string(variable.elements) +
                                " elements");
  }
  if (!state->last.is_delivered() && kind != parameters::kPush) {
    return FailedPreconditionError(Me() + " asked for " + variable.name +
                                   " twice at once: ask in one thread at a time");
  }
  TREPAK_RETURN_IF_ERROR(state->last.CheckDelivered(Whose(key)));
  state->last.Begin(state->slices.size(), bytes);
  state->asked = pull;
  state->factor = factor;
  state->has_rounds = kind == parameters::kPush;
  ++state->rounds;
  return SendSlices(key, precedence, *state, kind, pull ? parameters::kWantsAnswer : 0, values);
}

Status ParameterClient::Pull(uint32_t key, Precedence precedence) {
  std::lock_guard<std::mutex> lock(mutex_);
  Status status;
  State* const state = Find(key, &status);
  if (state == nullptr) {
    return status;
  }
  if (state->rounds == 0 || state->asked) {
    return FailedPreconditionError(Me() + " pulled " + state->variable.name +
                                   " without having pushed it, or twice");
  }
  state->asked = true;
  return SendSlices(key, precedence, *state, parameters::kPull, 0, Payload());
}

Status ParameterClient::SendSlices(uint32_t key, Precedence precedence, const State& state,
                                   MessageKind kind, uint8_t flags, const Payload& values) {
  const size_t element = SizeOf(state.variable.type);
  for (size_t index = 0; index < state.slices.size(); ++index) {
    const Slice& slice = state.slices[index];
    Message message;
    message.header.kind = kind;
    message.header.flags = flags;
    message.header.key = key;
    message.header.slice = static_cast<uint32_t>(index);
    message.header.round = state.rounds - 1;
    if (kind != parameters::kPull) {
      message.header.type = state.variable.type;
      message.payload = values.Part(slice.offset * element, slice.elements * element);
    }
    TREPAK_RETURN_IF_ERROR(Send(slice.server, precedence, std::move(message)));
  }
  return OkStatus();
}

std::string ParameterClient::Whose(uint32_t key) const {
  const std::optional<Variable> variable = table_->Find(key);
  return Me() + ": " + (variable.has_value() ? variable->name : "variable " + std::to_string(key));
}

Status ParameterClient::Handle(Message message) {
  const Header& header = message.header;
  GradientRound::Delivery delivery;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = states_.find(header.key);
    if (header.kind != parameters::kAnswer || found == states_.end()) {
      return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                  " sent something that nobody asked for");
    }
    State& state = found->second;
    const size_t element = SizeOf(state.variable.type);
    if (!state.last.Misses(header.slice) ||
        (state.has_rounds && header.round + 1 != state.rounds) ||
        header.type != state.variable.type ||
        message.payload.size() != state.slices[header.slice].elements * element ||
        header.sender != state.slices[header.slice].server) {
      return InternalError("the answer for slice " + std::to_string(header.slice) + " of " +
                           state.variable.name + ", round " + std::to_string(header.round) +
                           ", from rank " + std::to_string(header.sender) +
                           " is not the one that was asked for");
    }
    Scale(state.variable.type, message.payload.size(), state.factor, message.payload.data(),
          static_cast<char*>(state.last.result().mutable_data()) +
              state.slices[header.slice].offset * element);
    delivery = state.last.Arrive(header.slice);
  }
  delivery.Run();
  return OkStatus();
}

Status ParameterClient::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The servers know better whom they wait for: they shall be the first to complain.
  const auto deadline = options().deadline + std::chrono::seconds(1);
  for (const auto& [key, state] : states_) {
    if (!state.last.is_awaited() || now - state.last.since() < deadline) {
      continue;
    }
    for (size_t index = 0; index < state.slices.size(); ++index) {
      if (state.last.Misses(index)) {
        return DeadlineExceededError("waited " + std::to_string(options().deadline.count() / 1000) +
                                     " s for " + state.variable.name + " from the server on rank " +
                                     std::to_string(state.slices[index].server));
      }
    }
  }
  return OkStatus();
}

void ParameterClient::Failed(const Status& status) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, state] : states_) {
      if (Callback waiting = state.last.Abandon()) {
        callbacks.push_back(std::move(waiting));
      }
    }
  }
  for (const Callback& callback : callbacks) {
    callback(status, Payload());
  }
}

}  // namespace trepak
