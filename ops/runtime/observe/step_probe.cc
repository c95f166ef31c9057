#include "ops/runtime/observe/step_probe.h"

#include <algorithm>

namespace trepak {

StepProbe::Clock::duration StepProbe::Computed() {
  const Clock::duration emulated = stream_.total();
  const double longer_by = injection_.slow() - 1;
  std::lock_guard<std::mutex> lock(mutex_);
  Clock::duration computed = Clock::duration::zero();
  if (!first_) {
    computed = Clock::now() - current_.begin - (emulated - emulated_before_);
  }
  const auto pause = std::chrono::duration_cast<Clock::duration>(
      longer_by * std::max(computed, Clock::duration::zero()));
  return pause + injection_.TakeDelay();
}

void StepProbe::Ready() {
  std::lock_guard<std::mutex> lock(mutex_);
  current_.ready = Clock::now();
  if (first_) {
    current_.begin = current_.ready;  // what came before was start-up, not the step
    first_ = false;
  }
}

void StepProbe::Done(bool at_own_pace) {
  StepRecord ended;
  {
    const Clock::duration emulated = stream_.total();
    std::lock_guard<std::mutex> lock(mutex_);
    current_.step = injection_.step();
    current_.done = Clock::now();
    current_.at_own_pace = at_own_pace;
    if (records_.size() == kMostRecords) {
      records_.pop_front();
    }
    records_.push_back(current_);
    ended = current_;
    current_.begin = current_.done;
    emulated_before_ = emulated;
  }
  const Timeline::Track track = Timeline::Track::kSteps;
  timeline_.Span(track, "compute", ended.begin, ended.ready, {{"step", ended.step}});
  // Who merges timelines takes it that all ranks leave a synchronization together.
  timeline_.Span(track, at_own_pace ? "hand over" : "synchronize", ended.ready, ended.done,
                 {{"step", ended.step}});
  timeline_.BeginStep(ended.step + 1);
  injection_.EndStep();
}

std::vector<StepRecord> StepProbe::Drain() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<StepRecord> records(records_.begin(), records_.end());
  records_.clear();
  return records;
}

StepProbe& StepProbe::Global() {
  static StepProbe* const probe =
      new StepProbe(Injection::Global(), EmulatedStream::Global(), Timeline::Global());
  return *probe;
}

}  // namespace trepak
