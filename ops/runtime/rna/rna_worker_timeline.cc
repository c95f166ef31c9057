// What a worker of RNA shows in the timeline, says and counts; the rest is in rna_worker.cc.

#include <cstdio>
#include <string>

#include "ops/runtime/rna/rna_worker.h"

namespace trepak {

void RnaWorker::ShowRound(const Round& round, const Contribution& mine,
                          Clock::time_point begin) const {
  Timeline& timeline = *rules_.timeline;
  if (!timeline.on()) {
    return;
  }
  const Clock::time_point end = Clock::now();
  const auto number = static_cast<int64_t>(round.number);
  const auto contributors = static_cast<int64_t>(round.contributors);
  const std::string name = "round " + std::to_string(number) + ": ";
  if (mine.gradients == 0) {
    timeline.Span(Timeline::Track::kRounds, name + "null gradient", begin, end,
                  {{"round", number},
                   {"gradients", 0},
                   {"contributors", contributors},
                   {"initiator", round.initiator},
                   {"group", coordinator()},
                   {"run", rules_.run}},
                  rules_.row);
    return;
  }
  const std::string what = mine.gradients == 1 ? " gradient" : " gradients";
  timeline.Span(Timeline::Track::kRounds, name + std::to_string(mine.gradients) + what, begin, end,
                {{"round", number},
                 {"gradients", mine.gradients},
                 {"staleness", static_cast<int64_t>(mine.staleness)},
                 {"contributors", contributors},
                 {"initiator", round.initiator},
                 {"group", coordinator()},
                 {"run", rules_.run}},
                rules_.row);
}

void RnaWorker::ShowExchange(uint64_t round, Clock::time_point begin) const {
  if (rules_.timeline->on()) {
    rules_.timeline->Span(Timeline::Track::kRounds, "exchange after round " + std::to_string(round),
                          begin, Clock::now(), {{"group", coordinator()}, {"run", rules_.run}},
                          rules_.row);
  }
}

void RnaWorker::WarnOfNotFinite() const {
  if (contributions_.not_finite() == 0) {
    std::fprintf(stderr,
                 "trepak: a gradient of %s is not finite; it is left out, and so are others like "
                 "it. If they are many, lower the learning rate.\n",
                 Me().c_str());
  }
}

void RnaWorker::CountCopying(std::chrono::nanoseconds took) {
  std::lock_guard<std::mutex> lock(mutex_);
  counters_.copy_nanoseconds += static_cast<uint64_t>(took.count());
}

RnaWorker::Counters RnaWorker::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Counters counters = counters_;
  counters.dropped = contributions_.dropped();
  counters.not_finite = contributions_.not_finite();
  return counters;
}

}  // namespace trepak
