#include "ops/runtime/rna/rna_communicator.h"

#include <pthread.h>

#include <chrono>
#include <future>
#include <string>
#include <utility>

namespace trepak {
namespace {

// Elements behind the gradients.
constexpr size_t kContributors = 0;
constexpr size_t kSamples = 1;   // but for whole
constexpr size_t kMillions = 2;  // of them: a float counts exactly up to 16 millions
constexpr size_t kRate = 3;
constexpr size_t kExtra = 4;

constexpr uint64_t kMillion = 1'000'000;

constexpr std::chrono::milliseconds kLook{50};         // for a reason to give a sum up
constexpr std::chrono::milliseconds kPatience{2'000};  // with flows that may know more

double At(const RnaRules& rules, const Payload& buffer, size_t element) {
  const size_t at = rules.elements + element;
  return rules.type == ElementType::kFloat64 ? static_cast<const double*>(buffer.data())[at]
                                             : static_cast<const float*>(buffer.data())[at];
}

void Put(const RnaRules& rules, Payload* buffer, size_t element, double value) {
  const size_t at = rules.elements + element;
  if (rules.type == ElementType::kFloat64) {
    static_cast<double*>(buffer->mutable_data())[at] = value;
  } else {
    static_cast<float*>(buffer->mutable_data())[at] = static_cast<float>(value);
  }
}

// Puts what a rank brings, whose parts are forgotten, into memory for the sum.
Payload Pack(const RnaRules& rules, Contribution* mine) {
  Payload buffer = Payload::Allocate(rules.bytes() + kExtra * SizeOf(rules.type));
  mine->CombineInto(rules.type, rules.bytes(), buffer.mutable_data());
  Put(rules, &buffer, kContributors, mine->gradients == 0 ? 0.0 : 1.0);
  Put(rules, &buffer, kSamples, static_cast<double>(mine->samples % kMillion));
  Put(rules, &buffer, kMillions, static_cast<double>(mine->samples / kMillion));
  Put(rules, &buffer, kRate, mine->rate);
  return buffer;
}

void Unpack(const RnaRules& rules, const Payload& buffer, RnaRound* round) {
  round->sum = buffer.Part(0, rules.bytes());
  round->contributors = At(rules, buffer, kContributors);
  round->samples = static_cast<uint64_t>(At(rules, buffer, kSamples)) +
                   kMillion * static_cast<uint64_t>(At(rules, buffer, kMillions));
  round->rate = round->contributors == 0 ? 0.0 : At(rules, buffer, kRate) / round->contributors;
}

}  // namespace

RnaCommunicator::RnaCommunicator(const RnaRules& rules, uint32_t group, const Parts& parts,
                                 std::shared_ptr<CollectiveCalls> calls,
                                 std::shared_ptr<ErrorLatch> errors, Failed failed)
    : rules_(rules),
      group_(group),
      parts_(parts),
      calls_(std::move(calls)),
      errors_(std::move(errors)),
      failed_(std::move(failed)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "trepak-rna");
    Loop();
  });
}

void RnaCommunicator::Push(const RnaRound& round) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    rounds_.push_back(round);
  }
  changed_.notify_all();
}

void RnaCommunicator::Wake() {
  std::lock_guard<std::mutex> lock(mutex_);  // or the thread, about to wait, might miss it
  changed_.notify_all();
}

void RnaCommunicator::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void RnaCommunicator::Loop() {
  while (true) {
    RnaRound round;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !rounds_.empty(); });
      if (stopping_) {
        return;
      }
      round = std::move(rounds_.front());
      rounds_.pop_front();
    }
    const Status status = Perform(round);
    if (!status.ok()) {
      {
        // Horovod says that somebody has died; the flows say who, if not at once.
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait_for(lock, kPatience, [this] { return stopping_ || !errors_->ok(); });
      }
      failed_(round.number, status);
      return;
    }
    parts_.inbox->Wake();
  }
}

Status RnaCommunicator::Perform(RnaRound round) {
  const Timeline::Clock::time_point begin = Timeline::Clock::now();
  Contribution mine = round.is_exchange ? parts_.exchange->Take() : parts_.contributor->Take();
  const Payload buffer = Pack(rules_, &mine);  // while steps write further gradients
  TREPAK_RETURN_IF_ERROR(Sum(buffer));
  Unpack(rules_, buffer, &round);
  Show(round, mine, begin);  // before anybody can know that it has ended
  if (!round.is_exchange) {
    parts_.contributor->End(round.contributors != 0);
  }
  parts_.inbox->Put(std::move(round), mine);
  return OkStatus();
}

Status RnaCommunicator::Sum(const Payload& buffer) {
  const auto outcome = std::make_shared<std::promise<Status>>();  // may come after this has ended
  std::future<Status> done = outcome->get_future();
  CollectiveCalls::Sum sum;
  // The same name for all rounds: they are one after the other, and Horovod knows a name again.
  sum.name = rules_.sum;
  sum.type = rules_.type;
  sum.input = sum.output = buffer;
  sum.done = [outcome](const Status& status) { outcome->set_value(status); };
  TREPAK_RETURN_IF_ERROR(calls_->StartSum(std::move(sum)));
  while (done.wait_for(kLook) != std::future_status::ready) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ || !errors_->ok()) {
      return CancelledError("nobody wants its result any more");
    }
  }
  return done.get();
}

void RnaCommunicator::Show(const RnaRound& round, const Contribution& mine,
                           Timeline::Clock::time_point begin) const {
  if (!rules_.timeline->on()) {
    return;
  }
  const auto show = [&](const std::string& name, Timeline::Numbers numbers) {
    rules_.timeline->Span(Timeline::Track::kRounds, name, begin, Timeline::Clock::now(), numbers,
                          rules_.row);
  };
  const auto number = static_cast<int64_t>(round.number);
  const auto contributors = static_cast<int64_t>(round.contributors);
  const std::string name = "round " + std::to_string(number);
  if (round.is_exchange) {
    show("exchange after " + name, {{"group", group_}, {"run", rules_.run}});
  } else if (mine.gradients == 0) {
    show(name + ": null gradient", {{"round", number},
                                    {"gradients", 0},
                                    {"contributors", contributors},
                                    {"initiator", round.initiator},
                                    {"group", group_},
                                    {"run", rules_.run}});
  } else {
    const std::string what = mine.gradients == 1 ? " gradient" : " gradients";
    show(name + ": " + std::to_string(mine.gradients) + what,
         {{"round", number},
          {"gradients", mine.gradients},
          {"staleness", static_cast<int64_t>(mine.staleness)},
          {"contributors", contributors},
          {"initiator", round.initiator},
          {"group", group_},
          {"run", rules_.run}});
  }
}

}  // namespace trepak
