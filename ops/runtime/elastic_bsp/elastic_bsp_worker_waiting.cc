// What ElasticBspWorker waits for: how long, how that is shown, and what is said when it is too
// long.

#include <algorithm>
#include <chrono>
#include <string>

#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"

namespace trepak {

Status ElasticBspWorker::Tick(Clock::time_point now) {
  TREPAK_RETURN_IF_ERROR(global_->error());  // whom it misses is missed here too
  std::lock_guard<std::mutex> lock(mutex_);
  const bool waits = state_ == State::kWaiting || state_ == State::kClosed || on_drained_;
  if (!waits) {
    return OkStatus();
  }
  TREPAK_RETURN_IF_ERROR(CheckThatCoordinatorIsHere());
  // The coordinator tells those that wait for others' steps that these go on.
  const Clock::time_point since = state_ == State::kWaiting ? std::max(since_, heard_) : since_;
  return now - since < patience() ? OkStatus() : WaitedTooLong(NotYet());
}

void ElasticBspWorker::EndWaiting(const std::string& name, bool at_barrier, Clock::time_point end) {
  counters_.waiting_nanoseconds += static_cast<uint64_t>((end - since_).count());
  if (!rules_.timeline->on()) {
    return;
  }
  const auto steps = static_cast<int64_t>(steps_);
  if (at_barrier) {  // which all ranks leave together, as they do a round
    const auto superstep = static_cast<int64_t>(superstep_);
    rules_.timeline->Span(
        Timeline::Track::kRounds, name, since_, end,
        {{"round", superstep}, {"group", coordinator()}, {"run", 0}, {"steps", steps}}, rules_.row);
  } else {
    rules_.timeline->Span(Timeline::Track::kRounds, name, since_, end, {{"steps", steps}},
                          rules_.row);
  }
}

void ElasticBspWorker::ShowSuperstep(Clock::time_point end) const {
  // With SSP and ASP there are none, and a pause may follow a pause.
  if (superstep_ != 0 && steps_ > steps_before_superstep_ && rules_.timeline->on()) {
    rules_.timeline->Span(
        Timeline::Track::kRounds, "superstep " + std::to_string(superstep_), superstep_since_, end,
        {{"superstep", static_cast<int64_t>(superstep_)}, {"steps", static_cast<int64_t>(steps_)}},
        rules_.row);
  }
}

std::string ElasticBspWorker::NotYet() const {
  if (on_drained_) {
    return "all ranks to flush, as at the end of an epoch";
  }
  if (superstep_ == 0) {
    return "slower ranks";  // with SSP
  }
  return state_ == State::kClosed
             ? "all ranks to fetch the parameters of barrier " + std::to_string(superstep_)
             : "other ranks to come to the end of superstep " + std::to_string(superstep_);
}

}  // namespace trepak
