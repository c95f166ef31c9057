#include "ops/runtime/fela/fela_rehearsal.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;

// When a worker's message is there; of one moment the first that was sent. It reports a token, or
// has none and requests its first one.
using Arrival = std::tuple<double, uint64_t, uint32_t, uint32_t>;
constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();

class Rehearsing {
 public:
  Rehearsing(const FelaRules& rules, const FelaPace& pace, FelaRehearsal* result)
      : scheduler_(rules), pace_(pace), result_(*result) {}

  Status Run() {
    const std::vector<uint32_t>& batches = scheduler_.plan().rules().batches;
    for (uint32_t worker = 0; worker < batches.size(); ++worker) {
      TREPAK_RETURN_IF_ERROR(Ask([&](FelaScheduler::Orders* orders) {
        return scheduler_.Begin(worker, 0, batches[worker], orders);
      }));
      const double delay = pace_.delays.empty() ? 0 : pace_.delays[worker];
      Send(delay + pace_.latency, worker, kNoToken);
    }
    while (!over_) {
      const auto [now, sent, worker, token] = arrivals_.top();
      arrivals_.pop();
      result_.seconds = now;
      TREPAK_RETURN_IF_ERROR(Ask([&](FelaScheduler::Orders* orders) {
        return token == kNoToken ? scheduler_.Request(worker, 0, orders)
                                 : scheduler_.Report(worker, 0, token, orders);
      }));
    }
    result_.counters = scheduler_.counters();
    return OkStatus();
  }

 private:
  template <typename Say>
  Status Ask(const Say& say) {
    FelaScheduler::Orders orders;
    const Clock::time_point began = Clock::now();
    const Status status = say(&orders);
    const double took = std::chrono::duration<double>(Clock::now() - began).count();
    result_.busy_seconds += took;
    result_.worst_seconds = std::max(result_.worst_seconds, took);
    ++result_.requests;
    over_ = over_ || orders.over();
    for (const FelaScheduler::Assignment& one : orders.assignments) {
      constexpr uint64_t kPrime = 1099511628211U;  // FNV-1a's
      result_.order = (result_.order ^ one.worker) * kPrime;
      result_.order = (result_.order ^ one.token) * kPrime;
      const double longer = one.recomputes ? 1 + pace_.recomputing : 1;
      const double training =
          longer * (pace_.fixed[one.stage - 1] + pace_.each[one.stage - 1] * one.samples);
      Send(result_.seconds + training + 2 * pace_.latency, one.worker, one.token);
    }
    return status;
  }

  void Send(double when, uint32_t worker, uint32_t token) {
    arrivals_.emplace(when, sent_++, worker, token);
  }

  FelaScheduler scheduler_;
  const FelaPace& pace_;
  FelaRehearsal& result_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  uint64_t sent_ = 0;
  bool over_ = false;
};

}  // namespace

Status Rehearse(const FelaRules& rules, const FelaPace& pace, FelaRehearsal* result) {
  const size_t stages = FelaPlan(rules).stages();
  if (pace.fixed.size() != stages || pace.each.size() != stages) {
    return InvalidArgumentError("there must be seconds of each of the " + std::to_string(stages) +
                                " stages");
  }
  if (!pace.delays.empty() && pace.delays.size() != rules.batches.size()) {
    return InvalidArgumentError("there must be a delay of each worker, or none");
  }
  *result = FelaRehearsal();
  return Rehearsing(rules, pace, result).Run();
}

}  // namespace trepak
