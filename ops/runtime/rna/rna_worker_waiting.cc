// What waits for rounds: steps that must have one, flushes, and for how long.

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/rna/rna_messages.h"
#include "ops/runtime/rna/rna_worker.h"

namespace trepak {

namespace {

// Deadlines for which a rank steps on while no round starts. Others may be saving a file.
constexpr int kPatienceOfSteps = 10;

}  // namespace

void RnaWorker::Await(Callback callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (awaiting_.empty()) {
      awaiting_since_ = Clock::now();
    }
    awaiting_.push_back(std::move(callback));
  }
  WakeWaiting();
}

Status RnaWorker::Tick(Clock::time_point now) {
  if (global_ != nullptr) {
    TREPAK_RETURN_IF_ERROR(global_->error());  // whom it misses is missed here too
  }
  std::lock_guard<std::mutex> lock(mutex_);
  // Rounds that have started end without the coordinator, which may have seen the last one.
  const bool awaits = !awaiting_.empty() && Finished() == 0 && started_ == ended_;
  const bool waits = (draining_ && !last_) || awaits || exchange_.locked();
  if (waits || !contributions_.empty()) {
    TREPAK_RETURN_IF_ERROR(CheckThatCoordinatorIsHere());
  }
  const bool drains_late = draining_ && now - drains_since_ >= patience();
  const bool awaits_long = !awaiting_.empty() && now - awaiting_since_ >= patience();
  const bool is_locked_long = exchange_.locked() && now - locked_since_ >= patience();
  const bool too_long = drains_late || awaits_long || is_locked_long;
  return too_long ? WaitedTooLong(NotYet()) : OkStatus();
}

std::string RnaWorker::NotYet() const {
  if (exchange_.locked()) {
    return "the parameters that rank " + std::to_string(locked_by_) +
           " exchanges for its group after round " + std::to_string(*exchange_.locked());
  }
  if (draining_ && !last_) {
    return "all ranks to flush their gradients, as at the end of an epoch";
  }
  return "round " + std::to_string(ended_) + ", which " +
         (started_ > ended_ ? "some rank does not take part in"
                            : "too few ranks have gradients for");
}

Status RnaWorker::CheckThatRoundsGoOn(Clock::time_point now) {
  const bool steps_on = written_ && now - *written_ < options().deadline;
  if (contributions_.empty() || !steps_on) {
    stepping_since_ = now;
    return OkStatus();
  }
  if (now - stepping_since_ < kPatienceOfSteps * options().deadline) {
    return OkStatus();
  }
  return DeadlineExceededError(
      "it has stepped on for " +
      std::to_string(kPatienceOfSteps * options().deadline.count() / 1000) + " s without " +
      NotYet() + ": look for a rank that stands still");
}

void RnaWorker::Drain(Callback callback) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!draining_) {
      draining_ = true;
      drains_since_ = Clock::now();
      written_.reset();
      on_drained_ = std::exchange(callback, nullptr);
      probe_.reset();
      bool has_gradients = false;
      if (taken_ == started_) {
        contributions_.Expire(NextVersion());
        has_gradients = !contributions_.empty();
      }
      status = Answer(coordination::kDrain, started_, has_gradients ? rna::kHasGradients : 0);
    }
  }
  if (callback) {
    callback(FailedPreconditionError(Me() + " drains twice at a time"));
    return;
  }
  if (!status.ok()) {
    Fail(status);
  }
  WakeWaiting();
}

bool RnaWorker::MustWait() const {
  if (rules_.aligned) {
    return ended_ < due_;
  }
  const bool nothing_comes = contributions_.empty() && taken_ == ended_ && !exchange_.locked();
  return Finished() == 0 && !nothing_comes;
}

void RnaWorker::WakeWaiting() {
  std::vector<Callback> awaiting;
  Callback on_drained;
  const Status status = error();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok() || !MustWait()) {
      awaiting.swap(awaiting_);
    }
    if (draining_ && (!status.ok() || (last_ && ended_ >= *last_))) {
      on_drained = std::move(on_drained_);
      on_drained_ = nullptr;
      draining_ = false;
      limit_ = last_;
      due_ = last_.value_or(due_);  // ranks have taken different numbers of steps
      last_.reset();
    }
  }
  for (const Callback& callback : awaiting) {
    callback(status);
  }
  if (on_drained) {
    on_drained(status);
  }
}

void RnaWorker::Failed(const Status&) {
  {
    std::lock_guard<std::mutex> lock(mutex_);  // or who is about to wait might miss it
    changed_.notify_all();
  }
  WakeWaiting();
}

}  // namespace trepak
