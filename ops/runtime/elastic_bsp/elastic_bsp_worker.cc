#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "ops/runtime/elastic_bsp/elastic_bsp_messages.h"
#include "ops/runtime/parameters/summation.h"

namespace trepak {
namespace {

constexpr uint32_t kRanks = 1;  // that have made a change

}  // namespace

Status ElasticBspWorker::Check(const Payload& values) const {
  TREPAK_RETURN_IF_ERROR(error());
  if (values.size() != bytes()) {
    return InvalidArgumentError(Me() + " has " + std::to_string(values.size()) +
                                " bytes of parameters, not " + std::to_string(bytes()));
  }
  return OkStatus();
}

Status ElasticBspWorker::CheckThatItIsFree() const {
  TREPAK_RETURN_IF_ERROR(error());  // Failed tells of a later one
  if (state_ != State::kNone || on_drained_ || !adopted_.any()) {
    return FailedPreconditionError(Me() +
                                   " ends a step, or drains, while another step or drain has not "
                                   "ended, or before it has fetched parameters");
  }
  return OkStatus();
}

void ElasticBspWorker::Step(Payload values, uint64_t samples, bool finite,
                            ValuesCallback callback) {
  Status status = Check(values);
  bool goes = false;
  if (status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    status = CheckThatItIsFree();
    if (status.ok()) {
      values_ = adopted_.Change(values);
      if (!finite || !AllFinite(rules_.type, values_.size(), values_.data())) {
        LeaveOut();
      }
      step_samples_ = samples;
      on_stepped_ = std::move(callback);
      since_ = Clock::now();
      goes = !is_gated_ || opened_ >= superstep_;
      state_ = goes ? State::kExchanging : State::kClosed;
    }
  }
  if (!status.ok()) {
    callback(status, Payload());
  } else if (goes) {
    Push();
  }
}

void ElasticBspWorker::LeaveOut() {
  if (counters_.not_finite++ == 0) {
    std::fprintf(stderr,
                 "trepak: a step of %s had gradients, or made values, that are not finite; it is "
                 "left out, and so are others like it. If they are many, lower the learning "
                 "rate.\n",
                 Me().c_str());
  }
  std::memset(values_.mutable_data(), 0, values_.size());
}

void ElasticBspWorker::Push() {
  Payload change;
  uint64_t samples = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    change = std::move(values_);
    values_ = Payload();
    samples = step_samples_;
  }
  global_->Change(std::move(change), kRanks, samples,
                  [weak = weak_from_this()](const Status& status, Payload values, uint64_t total) {
                    if (const std::shared_ptr<ElasticBspWorker> self = weak.lock()) {
                      self->Pushed(status, std::move(values), total);
                    }
                  });
}

void ElasticBspWorker::Adopt(const Payload& values, uint64_t total) {
  adopted_.Adopt(values);
  total_ = std::max(total_, total);
}

void ElasticBspWorker::Arrived(Payload values, uint64_t total, Clock::time_point now) {
  communication_ += now - since_;
  counters_.exchange_nanoseconds += static_cast<uint64_t>((now - since_).count());
  Adopt(values, total);
  values_ = std::move(values);
}

void ElasticBspWorker::Pushed(const Status& status, Payload values, uint64_t total) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  Status sent;
  bool may_go_on = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kExchanging) {
      return;  // it has failed meanwhile
    }
    const Clock::time_point now = Clock::now();
    Arrived(std::move(values), total, now);
    ++steps_;
    ++counters_.steps;
    may_go_on = MayGoOn();
    since_ = now;
    if (!may_go_on) {
      state_ = State::kWaiting;
      ShowSuperstep(now);
    }
    sent = Send(coordinator(), {}, Stepped());
  }
  if (!sent.ok()) {
    Fail(sent);
  } else if (may_go_on) {
    GoOn();
  }
}

Message ElasticBspWorker::Stepped() {
  const elastic_bsp::Stepped step{std::chrono::duration<double>(communication_).count(),
                                  std::chrono::duration<double>(held_up_).count()};
  communication_ = held_up_ = std::chrono::nanoseconds{0};
  return MessageOf(elastic_bsp::kStepped, step);
}

void ElasticBspWorker::GoOn() {
  ValuesCallback callback;
  Payload values;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::kNone) {
      return;  // it has failed meanwhile
    }
    state_ = State::kNone;
    callback.swap(on_stepped_);
    values = std::move(values_);
    values_ = Payload();
  }
  callback(OkStatus(), std::move(values));
}

void ElasticBspWorker::Drain(const Payload& values, Callback callback) {
  Status status = Check(values);
  if (status.ok() && !AllFinite(rules_.type, values.size(), values.data())) {
    // The servers' would never be finite again. All ranks are told: they wait for this one.
    Fail(InvalidArgumentError(Me() + "'s parameters are not finite: lower the learning rate, or "
                                     "set weights that are"));
    status = error();
  }
  Payload change;
  if (status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    status = CheckThatItIsFree();
    if (status.ok()) {
      on_drained_ = std::exchange(callback, nullptr);
      since_ = Clock::now();
      ShowSuperstep(since_);
      if (!adopted_.Are(values)) {
        change = adopted_.Change(values);
      }
    }
  }
  if (callback) {
    callback(status);
  } else if (change.size() == 0) {
    SayThatItDrains(OkStatus());
  } else {
    global_->Change(std::move(change), kRanks, 0,
                    [weak = weak_from_this()](const Status& outcome, const Payload&, uint64_t) {
                      if (const std::shared_ptr<ElasticBspWorker> self = weak.lock()) {
                        self->SayThatItDrains(outcome);
                      }
                    });
  }
}

void ElasticBspWorker::SayThatItDrains(const Status& status) {
  Message message;
  message.header.kind = coordination::kDrain;
  const Status sent = status.ok() ? Send(coordinator(), {}, std::move(message)) : status;
  if (!sent.ok()) {
    Fail(sent);
  }
}

void ElasticBspWorker::Assign(Payload values, Callback callback) {
  const Status status = Check(values);
  if (!status.ok()) {
    callback(status);
    return;
  }
  global_->Assign(std::move(values),
                  [callback = std::move(callback)](const Status& outcome, const Payload&,
                                                   uint64_t) { callback(outcome); });
}

void ElasticBspWorker::Fetch(ValuesCallback callback) {
  global_->Fetch([weak = weak_from_this(), callback = std::move(callback)](
                     const Status& status, Payload values, uint64_t total) {
    const std::shared_ptr<ElasticBspWorker> self = weak.lock();
    if (status.ok() && self != nullptr) {
      std::lock_guard<std::mutex> lock(self->mutex_);
      self->Adopt(values, total);
    }
    callback(status, std::move(values));
  });
}

uint64_t ElasticBspWorker::TakeSamples() {
  std::lock_guard<std::mutex> lock(mutex_);
  return total_ - std::exchange(taken_, total_);
}

ElasticBspWorker::Counters ElasticBspWorker::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

void ElasticBspWorker::Failed(const Status& status) {
  ValuesCallback on_stepped;
  Callback on_drained;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    on_stepped.swap(on_stepped_);
    on_drained.swap(on_drained_);
    state_ = State::kNone;
  }
  if (on_stepped) {
    on_stepped(status, Payload());
  }
  if (on_drained) {
    on_drained(status);
  }
}

}  // namespace trepak
