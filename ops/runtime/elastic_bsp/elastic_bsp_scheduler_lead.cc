// What ElasticBspScheduler grants where there are no barriers: with SSP and ASP.

#include <algorithm>
#include <optional>

#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"

namespace trepak {

std::optional<int64_t> ElasticBspScheduler::Slowest() const {
  std::optional<int64_t> slowest;
  for (const Worker& worker : workers_) {
    if (IsIn(worker)) {
      slowest = std::min(slowest.value_or(worker.since_first()), worker.since_first());
    }
  }
  return slowest;
}

void ElasticBspScheduler::GrantLead(double now, Orders* orders) {
  const std::optional<int64_t> slowest = Slowest();
  const bool on_and_on = rules_.model == Model::kAsp || !slowest;
  for (uint32_t number = 0; number < workers_.size(); ++number) {
    Worker& worker = workers_[number];
    const uint64_t steps =
        on_and_on ? kForever
                  : static_cast<uint64_t>(worker.first + *slowest + rules_.staleness + 1);
    // Who is out comes back as one that has kept up, whatever the others have done meanwhile.
    if (worker.active && !worker.out && worker.granted < steps) {
      worker.granted = steps;
      orders->grants.push_back({number, steps});
      if (worker.waits && worker.taken < steps) {
        StopWaiting(&worker, now);
        worker.latest = now;  // what it has waited is no part of its step
      }
    }
  }
}

}  // namespace trepak
