#include "ops/runtime/rna/rna_worker.h"

#include <pthread.h>

#include <cstring>
#include <string>

#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;

// Elements behind the gradients.
constexpr size_t kContributors = 0;
constexpr size_t kSamples = 1;   // but for whole
constexpr size_t kMillions = 2;  // of them: a float counts exactly up to 16 millions
constexpr size_t kRate = 3;
constexpr size_t kExtra = 4;

constexpr uint64_t kMillion = 1'000'000;

constexpr milliseconds kPatience{2'000};  // with flows that may know more

}  // namespace

RnaWorker::RnaWorker(const Options& options, const Rules& rules, uint32_t coordinator,
                     std::shared_ptr<RoundReducer> reducer,
                     std::shared_ptr<GlobalParameters> global, std::shared_ptr<ErrorLatch> errors)
    : CoordinatedWorker(options, coordinator, std::move(errors)),
      rules_(rules),
      reducer_(std::move(reducer)),
      global_(std::move(global)),
      contributions_(rules.type, bytes(), rules.staleness, rules.combine),
      exchange_(rules.exchange, rules.type, bytes()) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "trepak-rna");
    Loop();
  });
}

RnaWorker::~RnaWorker() { Shutdown(); }

void RnaWorker::Shutdown() {
  Stop();  // no further call from the transport
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Status RnaWorker::Write(Gradient gradient) {
  TREPAK_RETURN_IF_ERROR(error());
  const size_t size = gradient.values.size();
  if (size != bytes() && size != 0) {
    return InvalidArgumentError(Me() + " wrote " + std::to_string(size) +
                                " bytes of gradients, not " + std::to_string(bytes()));
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (draining_) {
    return FailedPreconditionError(Me() + " wrote gradients while it drains");
  }
  const Clock::time_point now = Clock::now();
  if (written_) {
    ++counters_.steps;
    counters_.step_nanoseconds += static_cast<uint64_t>((now - *written_).count());
  }
  Status goes_on = CheckThatRoundsGoOn(now);
  if (!goes_on.ok()) {
    lock.unlock();
    Fail(goes_on.Annotate(Me()));  // which tells the others
    return error();
  }
  written_ = now;
  limit_.reset();
  gradient.version = read_version_;
  if (size == 0) {
    WarnOfNotFinite();
  }
  contributions_.Add(std::move(gradient));
  ++due_;
  return AnswerProbe();
}

Status RnaWorker::AnswerProbe() {
  // What is there goes into a round that has started and not taken it yet.
  if (!probe_ || taken_ < started_) {
    return OkStatus();
  }
  contributions_.Expire(NextVersion());
  if (rules_.aligned ? due_ <= *probe_ : contributions_.empty()) {
    return OkStatus();
  }
  const uint64_t round = *probe_;
  probe_.reset();
  return Answer(rna::kReady, round);
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
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (header.kind != rna::kAdopt && header.round != started_) {
      return InternalError("the coordinator is in round " + std::to_string(header.round) +
                           ", this rank in round " + std::to_string(started_));
    }
    switch (header.kind) {
      case rna::kProbe:
        probe_ = header.round;
        return AnswerProbe();
      case rna::kGo:
        probe_.reset();
        tasks_.push_back({started_++, header.key, false});
        break;
      case rna::kAdopt:
        tasks_.push_back({header.round, 0, true});
        break;
      case coordination::kDrained:
        last_ = header.round;
        drains_since_ = Clock::now();
        break;
      default:
        return Unexpected(header, "a worker of rounds");
    }
  }
  changed_.notify_all();
  WakeWaiting();
  return OkStatus();
}

void RnaWorker::Loop() {
  while (true) {
    Task task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) {
        return;
      }
      task = tasks_.front();
      tasks_.pop_front();
    }
    Status status = task.is_exchange ? Adopt(task) : TakePart(task);
    if (!status.ok()) {
      {
        // Horovod says that somebody has died; the flows say who, if not at once.
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait_for(lock, kPatience, [this] { return stopping_ || !error().ok(); });
      }
      Fail(status.Annotate(Me() + ", round " + std::to_string(task.round)));
      return;
    }
    WakeWaiting();
  }
}

Status RnaWorker::Sum(const Payload& buffer) {
  return reducer_->Sum(calls_++, rules_.type, buffer, [this] {
    std::lock_guard<std::mutex> lock(mutex_);
    return stopping_ || !error().ok();
  });
}

Status RnaWorker::TakePart(const Task& task) {
  const Clock::time_point begin = Clock::now();
  Payload buffer = Payload::Allocate(bytes() + kExtra * SizeOf(rules_.type));
  Contribution mine;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    mine = contributions_.Take(ended_version_);
    ++taken_;
  }
  mine.CombineInto(rules_.type, bytes(), buffer.mutable_data());  // while steps write further ones
  Put(&buffer, kContributors, mine.gradients == 0 ? 0.0 : 1.0);
  PutSamples(&buffer, mine.samples);
  Put(&buffer, kRate, mine.rate);
  TREPAK_RETURN_IF_ERROR(Sum(buffer));
  Round round;
  round.number = task.round;
  round.initiator = task.initiator;
  round.contributors = At(buffer, kContributors);
  round.samples = SamplesAt(buffer);
  round.rate = round.contributors == 0 ? 0.0 : At(buffer, kRate) / round.contributors;
  round.sum = buffer.Part(0, bytes());
  ShowRound(round, mine, begin);  // before anybody can know that it has ended
  std::lock_guard<std::mutex> lock(mutex_);
  ++ended_;
  ended_version_ += round.contributors == 0 ? 0 : 1;
  ++counters_.rounds;
  counters_.contributed += mine.gradients == 0 ? 0 : 1;
  counters_.gradients += mine.gradients;
  counters_.staleness += mine.staleness;
  counters_.contributors += static_cast<uint64_t>(round.contributors);
  rounds_.push_back(std::move(round));
  return OkStatus();
}

Status RnaWorker::Adopt(const Task& task) {
  const Clock::time_point begin = Clock::now();
  // One rank has it: it goes to the others as the sum of it and their zeros.
  Payload buffer = Payload::Allocate(bytes() + kExtra * SizeOf(rules_.type));
  std::memset(buffer.mutable_data(), 0, buffer.size());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (exchanged_) {
      std::memcpy(buffer.mutable_data(), exchanged_->values.data(), bytes());
      PutSamples(&buffer, exchanged_->others);
      exchanged_.reset();
    }
  }
  TREPAK_RETURN_IF_ERROR(Sum(buffer));
  ShowExchange(task.round, begin);
  std::lock_guard<std::mutex> lock(mutex_);
  exchange_.Arrive(task.round, {buffer.Part(0, bytes()), SamplesAt(buffer)});
  return OkStatus();
}

void RnaWorker::PutSamples(Payload* buffer, uint64_t samples) const {
  Put(buffer, kSamples, static_cast<double>(samples % kMillion));
  Put(buffer, kMillions, static_cast<double>(samples / kMillion));
}

uint64_t RnaWorker::SamplesAt(const Payload& buffer) const {
  return static_cast<uint64_t>(At(buffer, kSamples)) +
         kMillion * static_cast<uint64_t>(At(buffer, kMillions));
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

size_t RnaWorker::Finished() const {
  if (exchange_.locked()) {
    return exchange_.has_arrived() ? 1 : 0;
  }
  return limit_ ? static_cast<size_t>(*limit_ - read_) : rounds_.size();
}

size_t RnaWorker::finished() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Finished();
}

size_t RnaWorker::remaining() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return (limit_ ? static_cast<size_t>(*limit_ - read_) : 0) + (exchange_.locked() ? 1 : 0);
}

Status RnaWorker::Read(Round* round) {
  TREPAK_RETURN_IF_ERROR(error());
  std::lock_guard<std::mutex> lock(mutex_);
  if (Finished() == 0) {
    return FailedPreconditionError(Me() + " reads a round, and none has finished");
  }
  if (exchange_.locked()) {
    RnaExchange::Outcome outcome = exchange_.Adopt();
    *round = Round();
    round->is_exchange = true;
    round->sum = std::move(outcome.values);
    round->samples = outcome.others;
    return OkStatus();
  }
  *round = std::move(rounds_.front());
  rounds_.pop_front();
  ++read_;
  read_version_ += round->contributors == 0 ? 0 : 1;
  exchange_.Apply(round->number, round->samples);
  locked_since_ = Clock::now();
  locked_by_ = round->initiator;
  round->exchanges = exchange_.locked() && round->initiator == options().rank;
  return OkStatus();
}

}  // namespace trepak
