#include "horovod_ext/runtime/rna_worker.h"

#include <pthread.h>

#include <string>

namespace trepak {
namespace {

// Elements behind the gradients.
constexpr size_t kContributors = 0;
constexpr size_t kSamples = 1;
constexpr size_t kRate = 2;
constexpr size_t kExtra = 3;

}  // namespace

RnaWorker::RnaWorker(const Options& options, const Rules& rules, uint32_t controller,
                     std::shared_ptr<RoundReducer> reducer, std::shared_ptr<ErrorLatch> errors)
    : Endpoint(options, std::move(errors)),
      rules_(rules),
      controller_(controller),
      reducer_(std::move(reducer)),
      contributions_(rules.type, rules.elements * SizeOf(rules.type), rules.staleness,
                     rules.combine) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "trepak-rna");
    Loop();
  });
}

RnaWorker::~RnaWorker() {
  Stop();  // no further call from the transport
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status RnaWorker::Write(Gradient gradient) {
  TREPAK_RETURN_IF_ERROR(error());
  const size_t size = gradient.values.size();
  if (size != bytes() && size != 0) {
    return InvalidArgumentError(Me() + " wrote " + std::to_string(size) +
                                " bytes of gradients, not " + std::to_string(bytes()));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (draining_) {
    return FailedPreconditionError(Me() + " wrote gradients while it drains");
  }
  limit_.reset();
  gradient.version = read_;
  contributions_.Add(std::move(gradient));
  return AnswerProbe();
}

Status RnaWorker::AnswerProbe() {
  // What is there goes into a round that has started and not taken it yet.
  if (!probe_ || taken_ < started_) {
    return OkStatus();
  }
  contributions_.Expire(*probe_);
  if (contributions_.empty()) {
    return OkStatus();
  }
  const uint64_t round = *probe_;
  probe_.reset();
  return Answer(MessageKind::kReady, round);
}

Status RnaWorker::Answer(MessageKind kind, uint64_t round, uint8_t flags) {
  Message answer;
  answer.header.kind = kind;
  answer.header.round = round;
  answer.header.flags = flags;
  return Send(controller_, {}, std::move(answer));
}

Status RnaWorker::Handle(Message message) {
  const Header& header = message.header;
  if (header.sender != controller_) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                " is not RNA's controller");
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (header.round != started_) {
      return InternalError("RNA's controller is in round " + std::to_string(header.round) +
                           ", this rank in round " + std::to_string(started_));
    }
    switch (header.kind) {
      case MessageKind::kProbe:
        probe_ = header.round;
        return AnswerProbe();
      case MessageKind::kGo:
        probe_.reset();
        ++started_;
        break;
      case MessageKind::kDrained:
        last_ = header.round;
        last_known_ = Clock::now();
        break;
      default:
        return InvalidArgumentError("RNA's worker got a message of kind " +
                                    std::to_string(static_cast<int>(header.kind)));
    }
  }
  changed_.notify_all();
  WakeWaiting();
  return OkStatus();
}

void RnaWorker::Loop() {
  while (true) {
    uint64_t number = 0;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || started_ > ended_; });
      if (stopping_) {
        return;
      }
      number = ended_;
    }
    Status status = TakePart(number);
    if (!status.ok()) {
      Fail(status.Annotate(Me() + ", round " + std::to_string(number) + " of RNA"));
      return;
    }
    WakeWaiting();
  }
}

Status RnaWorker::TakePart(uint64_t number) {
  const Clock::time_point begin = Clock::now();
  const size_t element = SizeOf(rules_.type);
  Payload buffer = Payload::Allocate(bytes() + kExtra * element);
  Contribution mine;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    mine = contributions_.Take(number, buffer.mutable_data());
    ++taken_;
  }
  Put(&buffer, kContributors, mine.gradients == 0 ? 0.0 : 1.0);
  Put(&buffer, kSamples, static_cast<double>(mine.samples));
  Put(&buffer, kRate, mine.rate);
  const auto given_up = [this] {
    std::lock_guard<std::mutex> lock(mutex_);
    return stopping_ || !error().ok();
  };
  TREPAK_RETURN_IF_ERROR(reducer_->Sum(number, rules_.type, buffer, given_up));
  Round round;
  round.number = number;
  round.contributors = At(buffer, kContributors);
  round.samples = At(buffer, kSamples);
  round.rate = round.contributors == 0 ? 0.0 : At(buffer, kRate) / round.contributors;
  round.sum = buffer.Part(0, bytes());
  std::lock_guard<std::mutex> lock(mutex_);
  ++ended_;
  ++counters_.rounds;
  counters_.contributed += mine.gradients == 0 ? 0 : 1;
  counters_.gradients += mine.gradients;
  counters_.staleness += mine.staleness;
  counters_.contributors += static_cast<uint64_t>(round.contributors);
  counters_.nanoseconds += static_cast<uint64_t>((Clock::now() - begin).count());
  rounds_.push_back(std::move(round));
  return OkStatus();
}

double RnaWorker::At(const Payload& buffer, size_t element) const {
  const size_t at = rules_.elements + element;
  return rules_.type == ElementType::kFloat64 ? static_cast<const double*>(buffer.data())[at]
                                              : static_cast<const float*>(buffer.data())[at];
}

void RnaWorker::Put(Payload* buffer, size_t element, double value) const {
  const size_t at = rules_.elements + element;
  if (rules_.type == ElementType::kFloat64) {
    static_cast<double*>(buffer->mutable_data())[at] = value;
  } else {
    static_cast<float*>(buffer->mutable_data())[at] = static_cast<float>(value);
  }
}

size_t RnaWorker::finished() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return limit_ ? static_cast<size_t>(*limit_ - read_) : rounds_.size();
}

Status RnaWorker::Read(Round* round) {
  TREPAK_RETURN_IF_ERROR(error());
  std::lock_guard<std::mutex> lock(mutex_);
  if (rounds_.empty()) {
    return FailedPreconditionError(Me() + " reads a round of RNA, and none has finished");
  }
  *round = std::move(rounds_.front());
  rounds_.pop_front();
  ++read_;
  return OkStatus();
}

void RnaWorker::Await(Callback callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (awaiting_.empty()) {
      awaiting_since_ = Clock::now();
    }
    awaiting_.push_back(std::move(callback));
  }
  WakeWaiting();
}

Status RnaWorker::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool drains_late = draining_ && last_ && now - last_known_ >= options().deadline;
  const bool awaits_long = !awaiting_.empty() && now - awaiting_since_ >= options().deadline;
  if (!drains_late && !awaits_long) {
    return OkStatus();
  }
  return DeadlineExceededError(
      "it waited " + std::to_string(options().deadline.count() / 1000) + " s for round " +
      std::to_string(ended_) + " of RNA, which " +
      (started_ > ended_ ? "some rank does not take part in" : "too few ranks have gradients for"));
}

void RnaWorker::Drain(Callback callback) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!draining_) {
      draining_ = true;
      on_drained_ = std::exchange(callback, nullptr);
      probe_.reset();
      bool has_gradients = false;
      if (taken_ == started_) {
        contributions_.Expire(started_);
        has_gradients = !contributions_.empty();
      }
      status = Answer(MessageKind::kDrain, started_, has_gradients ? kHasGradients : 0);
    }
  }
  if (callback) {
    callback(FailedPreconditionError(Me() + " drains twice at a time"));
    return;
  }
  if (!status.ok()) {
    Fail(status);
  }
  WakeWaiting();
}

void RnaWorker::WakeWaiting() {
  std::vector<Callback> awaiting;
  Callback on_drained;
  const Status status = error();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool nothing_comes = contributions_.empty() && taken_ == ended_;
    if (!status.ok() || !rounds_.empty() || nothing_comes) {
      awaiting.swap(awaiting_);
    }
    if (draining_ && (!status.ok() || (last_ && ended_ >= *last_))) {
      on_drained = std::move(on_drained_);
      on_drained_ = nullptr;
      draining_ = false;
      limit_ = last_;
      last_.reset();
    }
  }
  for (const Callback& callback : awaiting) {
    callback(status);
  }
  if (on_drained) {
    on_drained(status);
  }
}

void RnaWorker::Failed(const Status&) {
  changed_.notify_all();
  WakeWaiting();
}

RnaWorker::Counters RnaWorker::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Counters counters = counters_;
  counters.dropped = contributions_.dropped();
  counters.not_finite = contributions_.not_finite();
  return counters;
}

}  // namespace trepak
