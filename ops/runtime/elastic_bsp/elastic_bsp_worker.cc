#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "ops/runtime/parameters/summation.h"

namespace trepak {
namespace {

constexpr uint32_t kRanks = 1;  // that have made a change

std::string Awaited(const ElasticBspGrants::Progress& at) {
  if (at.wait == ElasticBspGrants::Wait::kForDrain) {
    return "all ranks to flush, as at the end of an epoch";
  }
  if (at.superstep == 0) {
    return "slower ranks";  // with SSP
  }
  return (at.wait == ElasticBspGrants::Wait::kAtGate
              ? "all ranks to fetch the parameters of barrier "
              : "other ranks to come to the end of superstep ") +
         std::to_string(at.superstep);
}

}  // namespace

void ElasticBspWorker::Step(Payload values, uint64_t samples, bool finite,
                            ValuesCallback callback) {
  std::optional<Payload> change = step_.Begin(values, std::move(callback));
  if (!change) {
    return;
  }
  if (!finite || !AllFinite(type_, change->size(), change->data())) {
    metrics_.LeaveOut(Me());
    std::memset(change->mutable_data(), 0, change->size());
  }
  const ElasticBspGrants::Push push = [this, change = *std::move(change), samples] {
    global_->Change(change, kRanks, samples, Receiving(&ElasticBspWorker::Pushed));
  };
  if (grants_.PassesGate(push)) {
    push();
  }
}

GlobalParameters::Callback ElasticBspWorker::Receiving(
    Status (ElasticBspWorker::*next)(Clock::time_point now)) {
  return [weak = weak_from_this(), next, begin = Clock::now()](const Status& status, Payload values,
                                                               uint64_t total) {
    const std::shared_ptr<ElasticBspWorker> self = weak.lock();
    if (self == nullptr) {
      return;
    }
    Status outcome = status;
    if (status.ok()) {
      const Clock::time_point now = Clock::now();
      if (!self->step_.Receive(std::move(values))) {
        return;  // a failure has ended the step meanwhile
      }
      self->metrics_.Received(now - begin, total);
      outcome = (*self.*next)(now);
    }
    if (!outcome.ok()) {
      self->Fail(outcome);
    }
  };
}

Status ElasticBspWorker::Pushed(Clock::time_point now) {
  const elastic_bsp::Stepped step = metrics_.EndStep();
  bool waits = false;
  TREPAK_RETURN_IF_ERROR(grants_.EndStep(now, [&](const Progress& at) {
    waits = at.wait != Wait::kNone;
    if (waits) {
      metrics_.ShowSuperstep(at);
    }
    return Send(coordinator(), {}, MessageOf(elastic_bsp::kStepped, step));
  }));
  if (!waits) {
    step_.End(OkStatus());
  }
  return OkStatus();
}

Status ElasticBspWorker::Fetched(Clock::time_point) {
  const Progress at = grants_.progress();
  if (at.is_gated) {
    TREPAK_RETURN_IF_ERROR(Tell(elastic_bsp::kFetched, at.superstep));
  }
  step_.End(OkStatus());
  return OkStatus();
}

void ElasticBspWorker::Drain(const Payload& values, Callback callback) {
  if (step_.Check(values).ok() && !AllFinite(type_, values.size(), values.data())) {
    // The servers' would never be finite again. All ranks are told: they wait for this one.
    Fail(InvalidArgumentError(Me() + "'s parameters are not finite: lower the learning rate, or "
                                     "set weights that are"));
  }
  std::optional<Payload> change = step_.Begin(
      values,
      [callback = std::move(callback)](const Status& status, const Payload&) { callback(status); });
  if (!change) {
    return;
  }
  metrics_.ShowSuperstep(grants_.BeginDrain());
  if (!step_.HasChanged(values)) {
    SayThatItDrains(OkStatus());
    return;
  }
  global_->Change(*std::move(change), kRanks, 0,
                  [weak = weak_from_this()](const Status& status, const Payload&, uint64_t) {
                    if (const std::shared_ptr<ElasticBspWorker> self = weak.lock()) {
                      self->SayThatItDrains(status);
                    }
                  });
}

void ElasticBspWorker::SayThatItDrains(const Status& status) {
  const Status sent = status.ok() ? Tell(coordination::kDrain) : status;
  if (!sent.ok()) {
    Fail(sent);
  }
}

Status ElasticBspWorker::Tell(MessageKind kind, uint64_t round) {
  Message message;
  message.header.kind = kind;
  message.header.round = round;
  return Send(coordinator(), {}, std::move(message));
}

void ElasticBspWorker::Assign(Payload values, Callback callback) {
  const Status status = step_.Check(values);
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
      self->step_.Receive(values);
      self->metrics_.Received({}, total);
    }
    callback(status, std::move(values));
  });
}

Status ElasticBspWorker::Handle(Message message) {
  const Header& header = message.header;
  if (header.sender != coordinator()) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                " is not the coordinator of ranks' steps");
  }
  elastic_bsp::Grant grant;
  ElasticBspGrants::Push push;
  std::optional<Progress> waited;
  switch (header.kind) {
    case elastic_bsp::kGrant:
      TREPAK_RETURN_IF_ERROR(ReadBody(message, &grant));
      waited = grants_.Take(grant);
      break;
    case elastic_bsp::kOpen:
      waited = grants_.OpenGate(header.round, &push);
      break;
    case coordination::kDrained:
      waited = grants_.EndDrain();
      break;
    default:
      return Unexpected(header, "a worker of steps");
  }
  if (waited) {
    metrics_.Waited(*waited, grant.at_barrier != 0 ? grant.ranks : 0);
    GoOn(waited->wait, push);
  } else if (grant.at_barrier != 0) {
    return InternalError("the coordinator takes " + Me() + " to be at a barrier, where it is not");
  } else if (header.kind == coordination::kDrained) {
    return InternalError("the coordinator of ranks' steps has ended a pause that was not");
  }
  return OkStatus();
}

void ElasticBspWorker::GoOn(Wait waited, const ElasticBspGrants::Push& push) {
  if (waited == Wait::kAtGate) {
    push();
  } else if (waited == Wait::kForGrant) {  // others have changed the parameters since
    global_->Fetch(Receiving(&ElasticBspWorker::Fetched));
  } else {
    step_.End(OkStatus());
  }
}

Status ElasticBspWorker::Tick(Clock::time_point now) {
  TREPAK_RETURN_IF_ERROR(global_->error());  // whom it misses is missed here too
  const Progress at = grants_.progress();
  if (at.wait == Wait::kNone) {
    return OkStatus();
  }
  TREPAK_RETURN_IF_ERROR(CheckThatCoordinatorIsHere());
  // The coordinator tells those that wait for others' steps that these go on.
  const Clock::time_point since =
      at.wait == Wait::kForGrant ? std::max(at.waits_since, at.heard) : at.waits_since;
  return now - since < patience() ? OkStatus() : WaitedTooLong(Awaited(at));
}

}  // namespace trepak
