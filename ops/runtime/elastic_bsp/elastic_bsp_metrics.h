// What a rank measures of its steps: for its user, the coordinator's predictions, and the timeline.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_METRICS_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_METRICS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "ops/runtime/elastic_bsp/elastic_bsp_grants.h"
#include "ops/runtime/observe/timeline.h"

namespace trepak {

// Thread safety: every method may be called from any thread. The metrics hold no other lock than
// their own; the timeline, which outlives them, has one too.
class ElasticBspMetrics {
 public:
  using Clock = ElasticBspGrants::Clock;
  using Progress = ElasticBspGrants::Progress;
  using Wait = ElasticBspGrants::Wait;

  // What has happened here so far.
  struct Counters {
    uint64_t steps = 0;
    uint64_t barriers = 0;              // that this rank has passed
    uint64_t met = 0;                   // ranks there, with this one, summed over barriers
    uint64_t not_finite = 0;            // steps that were left out
    uint64_t waiting_nanoseconds = 0;   // for other ranks: at barriers, their gates, and drains
    uint64_t exchange_nanoseconds = 0;  // for parameters
  };

  // `group`: whose ranks meet at barriers, named by their coordinator.
  ElasticBspMetrics(Timeline* timeline, int row, uint32_t group)
      : timeline_(timeline), row_(row), group_(group) {}

  // Parameters have come: a step has waited so long for them. All ranks together have taken so many
  // samples.
  void Received(Clock::duration took, uint64_t samples) {
    std::lock_guard<std::mutex> lock(mutex_);
    communication_ += took;
    counters_.exchange_nanoseconds += static_cast<uint64_t>(took.count());
    samples_ = std::max(samples_, samples);
  }

  // Samples that the last call has not returned.
  uint64_t TakeSamples() {
    std::lock_guard<std::mutex> lock(mutex_);
    return samples_ - std::exchange(taken_, samples_);
  }

  // Counts a step that is left out, and warns of the first. `me`: the rank, for the warning.
  void LeaveOut(const std::string& me) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (counters_.not_finite++ == 0) {
      std::fprintf(stderr,
                   "trepak: a step of %s had gradients, or made values, that are not finite; it is "
                   "left out, and so are others like it. If they are many, lower the learning "
                   "rate.\n",
                   me.c_str());
    }
  }

  // Counts a step. Returns for how many seconds it has communicated, and was held up at its gate.
  elastic_bsp::Stepped EndStep() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counters_.steps;
    return {Seconds(std::exchange(communication_, {})).count(),
            Seconds(std::exchange(held_up_, {})).count()};
  }

  // Counts a wait that has ended, and shows it. `met`: ranks at the barrier where it was, or 0.
  void Waited(const Progress& ended, uint64_t met) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const Clock::duration waited = ended.waited_until - ended.waits_since;
      counters_.waiting_nanoseconds += static_cast<uint64_t>(waited.count());
      held_up_ += ended.wait == Wait::kAtGate ? waited : Clock::duration{0};
      counters_.barriers += met == 0 ? 0 : 1;
      counters_.met += met;
    }
    const auto steps = static_cast<int64_t>(ended.steps);
    const auto superstep = static_cast<int64_t>(ended.superstep);
    if (met != 0) {  // all ranks leave a barrier together, as they do a round
      Show("barrier " + std::to_string(superstep), ended.waits_since, ended.waited_until,
           {{"round", superstep}, {"group", group_}, {"run", 0}, {"steps", steps}});
    } else {
      Show(ended.wait == Wait::kAtGate     ? "wait until all have fetched"
           : ended.wait == Wait::kForDrain ? "wait for all to flush"
                                           : "wait for slower ranks",
           ended.waits_since, ended.waited_until, {{"steps", steps}});
    }
  }

  // Shows the superstep that the rank has ended, and now waits after.
  void ShowSuperstep(const Progress& at) const {
    // With SSP and ASP there are none, and a pause may follow a pause.
    if (at.superstep != 0 && at.steps > at.steps_before_superstep) {
      const auto superstep = static_cast<int64_t>(at.superstep);
      Show("superstep " + std::to_string(superstep), at.superstep_since, at.waits_since,
           {{"superstep", superstep}, {"steps", static_cast<int64_t>(at.steps)}});
    }
  }

  Counters counters() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return counters_;
  }

 private:
  using Seconds = std::chrono::duration<double>;

  void Show(const std::string& name, Clock::time_point begin, Clock::time_point end,
            Timeline::Numbers numbers) const {
    timeline_->Span(Timeline::Track::kRounds, name, begin, end, numbers, row_);
  }

  Timeline* const timeline_;
  const int row_;
  const uint32_t group_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Clock::duration communication_{0};  // since the last step's end
  Clock::duration held_up_{0};        // at the gate, since then
  uint64_t samples_ = 0;              // of all ranks
  uint64_t taken_ = 0;                // of them, by TakeSamples
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_METRICS_H_
