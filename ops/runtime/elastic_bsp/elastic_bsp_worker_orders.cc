// What ElasticBspWorker does when the coordinator says so: goes on, from what the parameter servers
// have then.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ops/runtime/elastic_bsp/elastic_bsp_messages.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"

namespace trepak {

Status ElasticBspWorker::Handle(Message message) {
  const Header& header = message.header;
  if (header.sender != coordinator()) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                " is not the coordinator of ranks' steps");
  }
  switch (header.kind) {
    case elastic_bsp::kGrant: {
      elastic_bsp::Grant grant;
      TREPAK_RETURN_IF_ERROR(ReadBody(message, &grant));
      return OnGrant(grant);
    }
    case elastic_bsp::kOpen:
      OnOpen(header);
      return OkStatus();
    case coordination::kDrained:
      return OnDrained();
    default:
      return Unexpected(header, "a worker of steps");
  }
}

void ElasticBspWorker::OnOpen(const Header& header) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    opened_ = std::max(opened_, header.round);
    if (state_ != State::kClosed || opened_ < superstep_) {
      return;
    }
    const Clock::time_point now = Clock::now();
    held_up_ += now - since_;
    EndWaiting("wait until all have fetched", false, now);
    since_ = now;
    state_ = State::kExchanging;
  }
  Push();
}

Status ElasticBspWorker::OnDrained() {
  Callback callback;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    callback.swap(on_drained_);
    if (callback) {
      EndWaiting("wait for all to flush", false, Clock::now());
    }
    is_gated_ = false;  // all fetch, and meet, before any goes on
    granted_ = steps_;  // what was granted before the pause is void
  }
  if (!callback) {
    return InternalError("the coordinator of ranks' steps has ended a pause that was not");
  }
  callback(OkStatus());
  return OkStatus();
}

Status ElasticBspWorker::OnGrant(const elastic_bsp::Grant& grant) {
  bool goes_on = false;
  bool fetches = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Clock::time_point now = heard_ = Clock::now();
    granted_ = grant.steps;
    if (superstep_ != grant.superstep) {
      superstep_ = grant.superstep;
      superstep_since_ = now;
      steps_before_superstep_ = steps_;
    }
    goes_on = state_ == State::kWaiting && MayGoOn();
    fetches = grant.at_barrier != 0;
    if (fetches && !goes_on) {
      return InternalError("the coordinator takes " + Me() +
                           " to be at a barrier, where it is not");
    }
    if (goes_on) {
      EndWaiting(fetches ? "barrier " + std::to_string(superstep_) : "wait for slower ranks",
                 fetches, now);
      since_ = now;
      state_ = State::kFetching;  // who has waited has old ones
    }
    if (fetches) {
      ++counters_.barriers;
      counters_.met += grant.ranks;
      is_gated_ = true;
    }
  }
  if (goes_on) {
    global_->Fetch([weak = weak_from_this()](const Status& status, Payload values, uint64_t total) {
      if (const std::shared_ptr<ElasticBspWorker> self = weak.lock()) {
        self->Fetched(status, std::move(values), total);
      }
    });
  }
  return OkStatus();
}

void ElasticBspWorker::Fetched(const Status& status, Payload values, uint64_t total) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  Status sent;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kFetching) {
      return;  // it has failed meanwhile
    }
    Arrived(std::move(values), total, Clock::now());
    if (is_gated_) {
      Message message;
      message.header.kind = elastic_bsp::kFetched;
      message.header.round = superstep_;
      sent = Send(coordinator(), {}, std::move(message));
    }
  }
  if (!sent.ok()) {
    Fail(sent);
  } else {
    GoOn();
  }
}

}  // namespace trepak
