#include "ops/runtime/rna/rna_contributor.h"

#include <cstdio>
#include <utility>

#include "ops/runtime/rna/rna_messages.h"

namespace trepak {

RnaContributor::RnaContributor(const RnaRules& rules, std::string me, Answer answer)
    : rules_(rules),
      me_(std::move(me)),
      answer_(std::move(answer)),
      contributions_(rules.type, rules.bytes(), rules.staleness, rules.combine) {}

RnaContributor::Clock::duration RnaContributor::CountStep(Clock::time_point now,
                                                          Clock::duration pause) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (written_) {
    ++counters_.steps;
    counters_.step_nanoseconds += static_cast<uint64_t>((now - *written_).count());
  }
  const bool steps_on = written_ && now - *written_ < pause;
  if (contributions_.empty() || !steps_on) {
    stepping_since_ = now;
  }
  return now - stepping_since_;
}

Status RnaContributor::Write(Gradient gradient, Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (drains_) {
    return FailedPreconditionError(me_ + " wrote gradients while it drains");
  }
  written_ = now;
  if (gradient.values.size() == 0) {
    WarnOfNotFinite();
  }
  contributions_.Add(std::move(gradient));
  ++due_;
  return AnswerProbe();
}

Status RnaContributor::Probe(uint64_t round) {
  std::lock_guard<std::mutex> lock(mutex_);
  probe_ = round;
  return AnswerProbe();
}

Status RnaContributor::AnswerProbe() {
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
  return answer_(rna::kReady, round, 0);
}

Status RnaContributor::Drain() {
  std::lock_guard<std::mutex> lock(mutex_);
  drains_ = true;
  written_.reset();
  probe_.reset();
  bool has_gradients = false;
  if (taken_ == started_) {
    contributions_.Expire(NextVersion());
    has_gradients = !contributions_.empty();
  }
  return answer_(coordination::kDrain, started_, has_gradients ? rna::kHasGradients : 0);
}

RnaContributor::Counters RnaContributor::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Counters counters = counters_;
  counters.dropped = contributions_.dropped();
  counters.not_finite = contributions_.not_finite();
  return counters;
}

void RnaContributor::WarnOfNotFinite() const {
  if (contributions_.not_finite() == 0) {
    std::fprintf(stderr,
                 "trepak: a gradient of %s is not finite; it is left out, and so are others like "
                 "it. If they are many, lower the learning rate.\n",
                 me_.c_str());
  }
}

}  // namespace trepak
