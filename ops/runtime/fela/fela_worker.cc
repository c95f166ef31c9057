#include "ops/runtime/fela/fela_worker.h"

#include <algorithm>
#include <string>

#include "ops/runtime/fela/fela_messages.h"

namespace trepak {
namespace {

Message Saying(MessageKind kind) {
  Message message;
  message.header.kind = kind;
  return message;
}

Status NotInPlan(const Header& header, const std::string& what) {
  return InvalidArgumentError("rank " + std::to_string(header.sender) + " says that " + what +
                              " is over, which is not in the plan");
}

}  // namespace

std::vector<FelaPlan::Part> FelaWorker::Prepare(uint32_t samples) {
  uint64_t ended = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++next_;
    ended = ended_;
    ++counters_.iterations;
  }
  peer_->DropBefore(ended);
  std::vector<FelaPlan::Part> parts;
  for (uint32_t i = 0; i < plan_.FirstTokens(options().rank, samples); ++i) {
    parts.push_back(plan_.PartOf(options().rank, samples, i));
  }
  return parts;
}

Status FelaWorker::Begin(uint32_t samples) {
  return Tell(Saying(fela::kBegin), samples, iteration());
}

uint64_t FelaWorker::iteration() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_ == 0 ? 0 : next_ - 1;
}

Status FelaWorker::Request(bool to_the_end) {
  return Tell(Saying(fela::kRequest), to_the_end ? 1 : 0, iteration());
}

bool FelaWorker::StandStill(Clock::duration time) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_over = [this] { return ended_ == next_; };
  changed_.wait_for(lock, time, [this, is_over] { return is_over() || !error().ok(); });
  return is_over();
}

Status FelaWorker::Report(uint32_t token, double loss) {
  uint64_t iteration = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    iteration = given_;
  }
  return Tell(MessageOf(fela::kReport, fela::Report{loss}), token, iteration);
}

Status FelaWorker::Tell(Message message, uint32_t key, uint64_t iteration) {
  TREPAK_RETURN_IF_ERROR(error());
  message.header.key = key;
  message.header.round = iteration;
  const Status status = Send(coordinator(), {}, std::move(message));
  if (!status.ok()) {
    Fail(status);
  }
  return status;
}

void FelaWorker::Next(Callback callback) {
  Status failed;
  std::optional<Event> event;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failed = error();  // under the lock: or it could come before there is whom to tell
    if (!events_.empty()) {
      event = std::move(events_.front());
      events_.pop_front();
    } else if (failed.ok()) {
      callback_ = std::move(callback);
      heard_ = Clock::now();
      return;
    }
  }
  callback(event ? OkStatus() : failed, event.value_or(Event()));
}

void FelaWorker::Pass(Event event) {
  Callback callback;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (event.kind == Event::Kind::kToken) {
      ++counters_.tokens;
      given_ = event.iteration;
    } else if (event.kind == Event::Kind::kOver) {
      ended_ = event.iteration + 1;
      changed_.notify_all();
    }
    callback.swap(callback_);
    if (!callback) {
      events_.push_back(std::move(event));
      return;
    }
  }
  callback(OkStatus(), event);
}

Status FelaWorker::Handle(Message message) {
  if (message.header.sender != coordinator()) {
    return Unexpected(message.header,
                      "a worker whose token server is on rank " + std::to_string(coordinator()));
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    heard_ = Clock::now();
  }
  Event event;
  event.iteration = message.header.round;
  fela::Over over;
  switch (message.header.kind) {
    case fela::kAssign:
      event.kind = Event::Kind::kToken;
      TREPAK_RETURN_IF_ERROR(fela::ReadAssignment(message, options().rank, plan_, &event.token));
      event.token.iteration = event.iteration;
      break;
    case fela::kTrained:
      event.kind = Event::Kind::kTrained;
      event.submodel = message.header.key;
      if (event.submodel == 0 || event.submodel > plan_.submodels()) {
        return NotInPlan(message.header, "sub-model " + std::to_string(event.submodel));
      }
      break;
    case fela::kOver:
      TREPAK_RETURN_IF_ERROR(ReadBody(message, &over));
      event.kind = Event::Kind::kOver;
      event.samples = over.samples;
      event.loss = over.loss;
      if (over.samples > plan_.samples()) {
        return NotInPlan(message.header,
                         "an iteration of " + std::to_string(over.samples) + " samples");
      }
      break;
    case fela::kAhead:
      event.kind = Event::Kind::kAhead;
      break;
    case fela::kSend:
      return SendChunk(message);
    case fela::kHere:
      return OkStatus();
    default:
      return Unexpected(message.header, "a worker");
  }
  Pass(std::move(event));
  return OkStatus();
}

Status FelaWorker::SendChunk(const Message& message) {
  fela::Send send;
  TREPAK_RETURN_IF_ERROR(ReadBody(message, &send));
  if (send.kind >= kFelaChunkKinds || send.to >= options().size) {
    return InvalidArgumentError("the token server wants a chunk of kind " +
                                std::to_string(send.kind) + " sent to rank " +
                                std::to_string(send.to) + ", which there is not");
  }
  return peer_->SendTo(
      {message.header.round, message.header.key, static_cast<FelaChunkKind>(send.kind)}, send.to);
}

Status FelaWorker::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!callback_) {
    return OkStatus();
  }
  if (now - heard_ >= patience()) {
    return WaitedTooLong("a word of the token server on rank " + std::to_string(coordinator()));
  }
  return CheckThatCoordinatorIsHere();
}

void FelaWorker::Failed(const Status& status) {
  Callback callback;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    callback.swap(callback_);
    changed_.notify_all();
  }
  if (callback) {
    callback(status, Event());
  }
}

FelaWorker::Counters FelaWorker::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace trepak
