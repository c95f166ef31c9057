#include "ops/runtime/rna/rna_worker.h"

#include <optional>
#include <string>

#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

// Deadlines for which a rank steps on while no round starts. Others may be saving a file.
constexpr int kPatienceOfSteps = 10;

GlobalParameters::Callback WithoutValues(RnaWorker::Callback callback) {
  return [callback = std::move(callback)](const Status& status, const Payload&, uint64_t) {
    callback(status);
  };
}

}  // namespace

RnaWorker::RnaWorker(const Options& options, const Rules& rules, uint32_t coordinator,
                     std::shared_ptr<CollectiveCalls> calls,
                     std::shared_ptr<GlobalParameters> global, std::shared_ptr<ErrorLatch> errors)
    : CoordinatedWorker(options, coordinator, errors),
      rules_(rules),
      contributor_(rules, Me(),
                   [this](MessageKind kind, uint64_t round, uint8_t flags) {
                     return Answer(kind, round, flags);
                   }),
      inbox_(rules, &contributor_, errors),
      exchange_(rules, Me(), std::move(global)),
      communicator_(rules, coordinator, {&contributor_, &exchange_, &inbox_}, std::move(calls),
                    errors, [this](uint64_t round, const Status& status) {
                      Fail(Status(status).Annotate(Me() + ", round " + std::to_string(round)));
                    }) {}

RnaWorker::~RnaWorker() { Shutdown(); }

void RnaWorker::Shutdown() {
  Stop();  // no further call from the transport
  communicator_.Stop();
}

Status RnaWorker::Write(Gradient gradient) {
  TREPAK_RETURN_IF_ERROR(error());
  const size_t size = gradient.values.size();
  if (size != rules_.bytes() && size != 0) {
    return InvalidArgumentError(Me() + " wrote " + std::to_string(size) +
                                " bytes of gradients, not " + std::to_string(rules_.bytes()));
  }
  const Clock::time_point now = Clock::now();
  const auto limit = kPatienceOfSteps * options().deadline;
  if (contributor_.CountStep(now, options().deadline) >= limit) {
    Fail(DeadlineExceededError("it has stepped on for " + std::to_string(limit.count() / 1000) +
                               " s without " + inbox_.Missing() +
                               ": look for a rank that stands still")
             .Annotate(Me()));  // which tells the others
    return error();
  }
  gradient.version = inbox_.GoOn();
  return contributor_.Write(std::move(gradient), now);
}

Status RnaWorker::Answer(MessageKind kind, uint64_t round, uint8_t flags) {
  Message answer;
  answer.header.kind = kind;
  answer.header.round = round;
  answer.header.flags = flags;
  return Send(coordinator(), {}, std::move(answer));
}

Status RnaWorker::Handle(Message message) {
  const Header& header = message.header;
  if (header.sender != coordinator()) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                " is not the coordinator of rounds");
  }
  const uint64_t started = contributor_.progress().started;  // by this thread alone
  if (header.kind != rna::kAdopt && header.round != started) {
    return InternalError("the coordinator is in round " + std::to_string(header.round) +
                         ", this rank in round " + std::to_string(started));
  }
  Round round;
  round.number = header.round;
  switch (header.kind) {
    case rna::kProbe:
      return contributor_.Probe(header.round);
    case rna::kGo:
      contributor_.Start();
      round.initiator = header.key;
      round.exchanges = rules_.ExchangesAfter(header.round) && round.initiator == options().rank;
      communicator_.Push(round);
      break;
    case rna::kAdopt:
      round.is_exchange = true;
      communicator_.Push(round);
      break;
    case coordination::kDrained:
      inbox_.EndDrainAfter(header.round);
      break;
    default:
      return Unexpected(header, "a worker of rounds");
  }
  inbox_.Wake();
  return OkStatus();
}

Status RnaWorker::Tick(Clock::time_point now) {
  TREPAK_RETURN_IF_ERROR(exchange_.error());  // whom it misses is missed here too
  if (inbox_.NeedsCoordinator()) {
    TREPAK_RETURN_IF_ERROR(CheckThatCoordinatorIsHere());
  }
  const std::string missing = inbox_.MissingSince(now - patience());
  return missing.empty() ? OkStatus() : WaitedTooLong(missing);
}

void RnaWorker::Failed(const Status&) {
  communicator_.Wake();
  inbox_.Wake();
}

Status RnaWorker::Read(Round* round) {
  TREPAK_RETURN_IF_ERROR(error());
  if (!inbox_.Read(round)) {
    return FailedPreconditionError(Me() + " reads a round, and none has finished");
  }
  exchange_.Apply(*round);
  return OkStatus();
}

Status RnaWorker::CheckParameters(const Payload& values) {
  TREPAK_RETURN_IF_ERROR(error());
  const Status status = exchange_.Check(values);
  if (status.code() == StatusCode::kInvalidArgument) {
    Fail(status);  // its group waits for what comes of it
    return error();
  }
  return status;
}

Status RnaWorker::Exchange(const Payload& values) {
  TREPAK_RETURN_IF_ERROR(CheckParameters(values));
  const std::optional<uint64_t> locked = inbox_.locked();
  if (!locked) {
    return FailedPreconditionError(Me() + " exchanges parameters after no round that says so");
  }
  exchange_.Change(values, [weak = weak_from_this(), round = *locked](const Status& status,
                                                                      Payload all, uint64_t total) {
    if (const std::shared_ptr<RnaWorker> self = weak.lock()) {
      self->Exchanged(round, status, std::move(all), total);
    }
  });
  return OkStatus();
}

void RnaWorker::Exchanged(uint64_t round, const Status& status, Payload values, uint64_t total) {
  Status outcome = status;
  if (outcome.ok()) {
    exchange_.Keep(std::move(values), total);
    outcome = Answer(rna::kExchanged, round);
  }
  if (!outcome.ok()) {
    Fail(outcome);
  }
}

void RnaWorker::BringLastChange(const Payload& values, Callback callback) {
  const Status status = CheckParameters(values);  // of all in the group, which have the same ones
  if (!status.ok() || !rules_.leads) {
    callback(status);
    return;
  }
  exchange_.Change(values, WithoutValues(std::move(callback)));
}

void RnaWorker::Fetch(ValuesCallback callback) {
  exchange_.global().Fetch([weak = weak_from_this(), callback = std::move(callback)](
                               const Status& status, Payload values, uint64_t total) {
    const std::shared_ptr<RnaWorker> self = weak.lock();
    if (status.ok() && self != nullptr) {
      self->exchange_.Begin(values, total);
    }
    callback(status, std::move(values));
  });
}

void RnaWorker::Assign(Payload values, Callback callback) {
  exchange_.global().Assign(std::move(values), WithoutValues(std::move(callback)));
}

void RnaWorker::Drain(Callback callback) {
  if (!inbox_.Drain(&callback)) {
    callback(FailedPreconditionError(Me() + " drains twice at a time"));
    return;
  }
  const Status status = contributor_.Drain();
  if (!status.ok()) {
    Fail(status);
  }
  inbox_.Wake();
}

}  // namespace trepak
