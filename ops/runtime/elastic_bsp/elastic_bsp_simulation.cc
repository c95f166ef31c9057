#include "ops/runtime/elastic_bsp/elastic_bsp_simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace trepak {
namespace {

using Event = std::pair<double, uint32_t>;  // when a worker ends a step

class Run {
 public:
  Run(const ElasticBspScheduler::Rules& rules, const Intervals& intervals,
      const std::vector<uint64_t>& pauses)
      : intervals_(intervals),
        length_(intervals.until == nullptr ? 0 : intervals.length()),
        pauses_(pauses),
        scheduler_(rules),
        granted_(rules.workers, 0),
        began_(rules.workers, 0.0),
        idle_since_(rules.workers, 0.0),
        idle_(rules.workers, true),
        fetches_(rules.workers, false) {
    simulated_.waiting.assign(rules.workers, 0.0);
    simulated_.taken.assign(rules.workers, 0);
  }

  Simulated Go(uint64_t steps) {
    Carry(scheduler_.Begin(0), 0);
    while (scheduler_.counters().steps < steps && !events_.empty()) {
      const auto [now, worker] = events_.top();
      events_.pop();
      simulated_.seconds = now;
      ++simulated_.taken[worker];
      simulated_.steps.push_back({worker, began_[worker], now});
      idle_[worker] = true;
      idle_since_[worker] = now;
      const ElasticBspScheduler::Orders orders = scheduler_.End(worker, now, 0);
      GoOn(worker, now);
      Carry(orders, now);
      Pause(now);
    }
    simulated_.counters = scheduler_.counters();
    return std::move(simulated_);
  }

 private:
  void Carry(const ElasticBspScheduler::Orders& orders, double now) {
    for (const ElasticBspScheduler::Grant& grant : orders.grants) {
      granted_[grant.worker] = grant.steps;
      fetches_[grant.worker] = orders.barrier && intervals_.after_barrier != nullptr;
      GoOn(grant.worker, now);
    }
  }

  void GoOn(uint32_t worker, double now) {
    const uint64_t step = simulated_.taken[worker];
    if (!idle_[worker] || step >= granted_[worker]) {
      return;
    }
    simulated_.waiting[worker] += now - idle_since_[worker];
    idle_[worker] = false;
    if (pauses_over_ < pauses_.size() && scheduler_.counters().steps >= pauses_[pauses_over_]) {
      pausing_.push_back(worker);
    } else {
      const double work = fetches_[worker] ? intervals_.after_barrier[worker] : 1;
      fetches_[worker] = false;
      began_[worker] = now;
      events_.emplace(now + intervals_.of(worker, step, work, now, length_), worker);
    }
  }

  // Has those pause that were to go on, after which others may be; begins anew after the last one.
  void Pause(double now) {
    while (!pausing_.empty()) {
      const std::vector<uint32_t> pausing = std::exchange(pausing_, {});
      for (const uint32_t worker : pausing) {
        ++paused_;
        Carry(scheduler_.Pause(worker, now), now);
      }
    }
    if (paused_ == granted_.size()) {
      paused_ = 0;
      if (++pauses_over_ < pauses_.size()) {
        std::fill(idle_.begin(), idle_.end(), true);
        std::fill(idle_since_.begin(), idle_since_.end(), now);
        Carry(scheduler_.Begin(now), now);
      }
    }
  }

  const Intervals intervals_;
  const double length_;  // seconds of the record
  const std::vector<uint64_t> pauses_;
  size_t pauses_over_ = 0;
  std::vector<uint32_t> pausing_;  // were to go on, and are to pause instead
  size_t paused_ = 0;              // workers
  ElasticBspScheduler scheduler_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<uint64_t> granted_;
  std::vector<double> began_;  // their steps
  std::vector<double> idle_since_;
  std::vector<bool> idle_;
  std::vector<bool> fetches_;  // parameters after a barrier, in the next step
  Simulated simulated_;
};

}  // namespace

double Intervals::length() const {
  double length = std::numeric_limits<double>::infinity();
  for (size_t worker = 0; worker < workers; ++worker) {
    length = std::min(length, until[(worker + 1) * steps - 1]);
  }
  return length;
}

double Intervals::of(size_t worker, uint64_t step, double work, double now, double length) const {
  const double* interval = values + worker * steps;
  if (until == nullptr) {
    return work * interval[step % steps];
  }
  const double* over = until + worker * steps;
  double time = std::fmod(now + begin, length);
  size_t at = std::upper_bound(over, over + steps - 1, time) - over;
  double took = 0;
  while (true) {
    const double lasts = std::min(over[at], length) - time;
    if (work * interval[at] <= lasts) {
      return took + work * interval[at];
    }
    work -= lasts / interval[at];
    took += lasts;
    const bool ends = over[at] >= length;
    time = ends ? 0 : over[at];
    at = ends ? 0 : at + 1;
  }
}

Simulated Simulate(const ElasticBspScheduler::Rules& rules, const Intervals& intervals,
                   uint64_t steps, const std::vector<uint64_t>& pauses) {
  return Run(rules, intervals, pauses).Go(steps);
}

}  // namespace trepak
