#include "ops/runtime/rna/rna_inbox.h"

#include <utility>

namespace trepak {

RnaInbox::RnaInbox(const RnaRules& rules, RnaContributor* contributor,
                   std::shared_ptr<ErrorLatch> errors)
    : rules_(rules), contributor_(contributor), errors_(std::move(errors)) {}

void RnaInbox::Put(RnaRound round, const Contribution& mine) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (round.is_exchange) {
    exchanged_.emplace(round.number, std::move(round));
    return;
  }
  ++counters_.rounds;
  counters_.contributed += mine.gradients == 0 ? 0 : 1;
  counters_.gradients += mine.gradients;
  counters_.staleness += mine.staleness;
  counters_.contributors += static_cast<uint64_t>(round.contributors);
  rounds_.push_back(std::move(round));
}

size_t RnaInbox::Finished() const {
  if (lock_) {
    return exchanged_.count(lock_->round);
  }
  return limit_ ? Limited() : rounds_.size();
}

bool RnaInbox::Read(RnaRound* round) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (Finished() == 0) {
    return false;
  }
  if (lock_) {
    *round = std::move(exchanged_.extract(lock_->round).mapped());
    lock_.reset();
    return true;
  }
  *round = std::move(rounds_.front());
  rounds_.pop_front();
  ++read_;
  read_version_ += round->contributors == 0 ? 0 : 1;
  if (rules_.ExchangesAfter(round->number)) {
    lock_ = Lock{round->number, round->initiator, Clock::now()};
  }
  return true;
}

void RnaInbox::Await(Callback callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (awaiting_.empty()) {
      awaiting_since_ = Clock::now();
    }
    awaiting_.push_back(std::move(callback));
  }
  Wake();
}

bool RnaInbox::Drain(Callback* callback) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (on_drained_) {
    return false;
  }
  on_drained_ = std::move(*callback);
  drains_since_ = Clock::now();
  return true;
}

bool RnaInbox::MustWait() const {
  const RnaContributor::Progress mine = contributor_->progress();
  if (rules_.aligned) {
    return Ended() < mine.due;
  }
  const bool nothing_comes = !mine.has_gradients && mine.taken == Ended() && !lock_;
  return Finished() == 0 && !nothing_comes;
}

void RnaInbox::Wake() {
  std::vector<Callback> over;
  const Status status = errors_->status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok() || !MustWait()) {
      over.swap(awaiting_);
    }
    if (on_drained_ && (!status.ok() || (last_ && Ended() >= *last_))) {
      over.push_back(std::exchange(on_drained_, nullptr));
      limit_ = std::exchange(last_, std::nullopt);
      contributor_->EndDrain(limit_);
    }
  }
  for (const Callback& callback : over) {
    callback(status);
  }
}

bool RnaInbox::NeedsCoordinator() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const RnaContributor::Progress mine = contributor_->progress();
  // Rounds that have started end without the coordinator, which may have seen the last one.
  const bool awaits = !awaiting_.empty() && Finished() == 0 && mine.started == Ended();
  return (on_drained_ && !last_) || awaits || lock_ || mine.has_gradients;
}

std::string RnaInbox::MissingSince(Clock::time_point since) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool drains_late = on_drained_ && drains_since_ <= since;
  const bool awaits_long = !awaiting_.empty() && awaiting_since_ <= since;
  const bool is_locked_long = lock_ && lock_->since <= since;
  return drains_late || awaits_long || is_locked_long ? NotYet() : "";
}

std::string RnaInbox::NotYet() const {
  if (lock_) {
    return "the parameters that rank " + std::to_string(lock_->initiator) +
           " exchanges for its group after round " + std::to_string(lock_->round);
  }
  if (on_drained_ && !last_) {
    return "all ranks to flush their gradients, as at the end of an epoch";
  }
  return "round " + std::to_string(Ended()) + ", which " +
         (contributor_->progress().started > Ended() ? "some rank does not take part in"
                                                     : "too few ranks have gradients for");
}

}  // namespace trepak
