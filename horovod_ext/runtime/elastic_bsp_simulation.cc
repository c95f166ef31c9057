#include "horovod_ext/runtime/elastic_bsp_simulation.h"

#include <functional>
#include <queue>
#include <utility>

namespace trepak {
namespace {

using Event = std::pair<double, uint32_t>;  // when a worker ends a step

class Run {
 public:
  Run(const ElasticBspScheduler::Rules& rules, const Intervals& intervals)
      : intervals_(intervals),
        scheduler_(rules),
        granted_(rules.workers, 0),
        idle_since_(rules.workers, 0.0),
        idle_(rules.workers, true) {
    simulated_.waiting.assign(rules.workers, 0.0);
    simulated_.steps.assign(rules.workers, 0);
  }

  Simulated Go(uint64_t steps) {
    Carry(scheduler_.Begin(0), 0);
    while (scheduler_.counters().steps < steps && !events_.empty()) {
      const auto [now, worker] = events_.top();
      events_.pop();
      simulated_.seconds = now;
      ++simulated_.steps[worker];
      idle_[worker] = true;
      idle_since_[worker] = now;
      const ElasticBspScheduler::Orders orders = scheduler_.End(worker, now, 0);
      GoOn(worker, now);
      Carry(orders, now);
    }
    simulated_.counters = scheduler_.counters();
    return std::move(simulated_);
  }

 private:
  void Carry(const ElasticBspScheduler::Orders& orders, double now) {
    for (const ElasticBspScheduler::Grant& grant : orders.grants) {
      granted_[grant.worker] = grant.steps;
      GoOn(grant.worker, now);
    }
  }

  void GoOn(uint32_t worker, double now) {
    const uint64_t step = simulated_.steps[worker];
    if (idle_[worker] && step < granted_[worker]) {
      simulated_.waiting[worker] += now - idle_since_[worker];
      idle_[worker] = false;
      events_.emplace(now + intervals_.of(worker, step), worker);
    }
  }

  const Intervals intervals_;
  ElasticBspScheduler scheduler_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<uint64_t> granted_;
  std::vector<double> idle_since_;
  std::vector<bool> idle_;
  Simulated simulated_;
};

}  // namespace

Simulated Simulate(const ElasticBspScheduler::Rules& rules, const Intervals& intervals,
                   uint64_t steps) {
  return Run(rules, intervals).Go(steps);
}

}  // namespace trepak
