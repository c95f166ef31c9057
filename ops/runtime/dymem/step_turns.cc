#include "ops/runtime/dymem/step_turns.h"

#include <cstddef>
#include <string>
#include <utility>

namespace trepak {

void StepTurns::Wait(int turn, Begin begin) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Turn& own = turns_[turn];
    if (!own.has_ended) {
      own.waiting = std::move(begin);
      last_change_ = TimerThread::Clock::now();
      if (!is_watched_) {
        is_watched_ = true;
        Watch();
      }
      return;
    }
    status = own.status;
  }
  begin(status);
}

void StepTurns::End(int turn, Status status) {
  Begin waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Turn& own = turns_[turn];
    if (own.has_ended) {
      return;
    }
    own.has_ended = true;
    own.status = status;
    waiting = std::exchange(own.waiting, nullptr);
    last_change_ = TimerThread::Clock::now();
  }
  if (waiting != nullptr) {
    waiting(status);
  }
}

void StepTurns::Watch() {
  timer_.RunAt(last_change_ + patience_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->CheckProgress();
    }
  });
}

void StepTurns::CheckProgress() {
  std::vector<int> waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t turn = 0; turn < turns_.size(); ++turn) {
      if (turns_[turn].waiting != nullptr) {
        waiting.push_back(static_cast<int>(turn));
      }
    }
    if (waiting.empty()) {
      is_watched_ = false;
      return;
    }
    if (TimerThread::Clock::now() < last_change_ + patience_) {
      Watch();
      return;
    }
    is_watched_ = false;  // until another one waits
  }
  for (const int turn : waiting) {
    End(turn,
        DeadlineExceededError("no turn has come for " + std::to_string(patience_.count()) +
                              " ms. That is an error of Dymem: report it, and train without it"));
  }
}

}  // namespace trepak
