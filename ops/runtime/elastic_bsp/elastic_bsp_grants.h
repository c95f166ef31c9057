// What the coordinator has granted to a rank, and what the rank waits for until more is granted.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_GRANTS_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_GRANTS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "ops/runtime/elastic_bsp/elastic_bsp_messages.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Whoever has taken as many steps as were granted waits for more. A barrier shuts the rank's gate:
// no change passes before all ranks have fetched the barrier's parameters.
//
// Thread safety: every method may be called from any thread. A rank begins to wait, and an order of
// the coordinator's ends the wait, under one lock, so that neither misses the other.
class ElasticBspGrants {
 public:
  using Clock = std::chrono::steady_clock;
  using Push = std::function<void()>;

  enum class Wait { kNone, kAtGate, kForGrant, kForDrain };

  // How far the rank has come, and what it waits for.
  struct Progress {
    uint64_t steps = 0;
    uint64_t superstep = 0;  // 0 with SSP and ASP, which have none
    uint64_t steps_before_superstep = 0;
    Clock::time_point superstep_since;
    bool is_gated = false;  // it has come here by a barrier
    Wait wait = Wait::kNone;
    Clock::time_point waits_since;
    Clock::time_point waited_until;  // of a wait that has ended
    Clock::time_point heard;         // of a grant
  };

  // Whether a step's change may pass the gate. If not, the rank waits, and OpenGate returns `push`.
  bool PassesGate(const Push& push) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool passes = !progress_.is_gated || opened_ >= progress_.superstep;
    if (!passes) {
      push_ = push;
      Begin(Wait::kAtGate, Clock::now());
    }
    return passes;
  }

  // Counts a step; the rank waits if no other one is granted. Returns what `tell` does, which tells
  // the coordinator. It runs under this lock, so that no grant is heard of before the coordinator
  // is told: the locks that `tell` takes, the flow's and the timeline's, come after this one.
  Status EndStep(Clock::time_point now, const std::function<Status(const Progress&)>& tell) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (++progress_.steps >= granted_) {
      Begin(Wait::kForGrant, now);
    }
    return tell(progress_);
  }

  // The rank waits until all ranks drain.
  Progress BeginDrain() {
    std::lock_guard<std::mutex> lock(mutex_);
    Begin(Wait::kForDrain, Clock::now());
    return progress_;
  }

  // The coordinator's orders. They return the wait that they end, or nothing.
  std::optional<Progress> Take(const elastic_bsp::Grant& grant) {
    std::lock_guard<std::mutex> lock(mutex_);
    progress_.heard = Clock::now();
    granted_ = grant.steps;
    if (progress_.superstep != grant.superstep) {
      progress_.superstep = grant.superstep;
      progress_.superstep_since = progress_.heard;
      progress_.steps_before_superstep = progress_.steps;
    }
    progress_.is_gated = progress_.is_gated || grant.at_barrier != 0;
    return progress_.steps < granted_ ? End(Wait::kForGrant) : std::nullopt;
  }

  std::optional<Progress> OpenGate(uint64_t superstep, Push* push) {
    std::lock_guard<std::mutex> lock(mutex_);
    opened_ = std::max(opened_, superstep);
    *push = opened_ < progress_.superstep ? nullptr : std::exchange(push_, nullptr);
    return *push ? End(Wait::kAtGate) : std::nullopt;
  }

  std::optional<Progress> EndDrain() {
    std::lock_guard<std::mutex> lock(mutex_);
    progress_.is_gated = false;  // all fetch, and meet, before any goes on
    granted_ = progress_.steps;  // what was granted before the pause is void
    return End(Wait::kForDrain);
  }

  Progress progress() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return progress_;
  }

 private:
  // Both require mutex_.
  void Begin(Wait wait, Clock::time_point now) {
    progress_.wait = wait;
    progress_.waits_since = now;
  }
  std::optional<Progress> End(Wait wait) {
    if (progress_.wait != wait) {
      return std::nullopt;
    }
    Progress ended = progress_;
    ended.waited_until = Clock::now();  // read under the lock: no wait ends before it began
    progress_.wait = Wait::kNone;
    return ended;
  }

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Progress progress_;
  uint64_t granted_ = 0;  // steps
  uint64_t opened_ = 0;   // the last superstep whose parameters all have fetched
  Push push_;             // of the step that waits at the gate
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_GRANTS_H_
