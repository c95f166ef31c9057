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
      if (!is_watched_) {
        is_watched_ = true;
        last_pass_ = TimerThread::Clock::now();
        Watch(last_pass_);
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
    if (is_watched_) {
      last_pass_ = TimerThread::Clock::now();
    }
  }
  if (waiting != nullptr) {
    waiting(status);
  }
}

void StepTurns::Watch(TimerThread::Clock::time_point from) {
  timer_.RunAt(from + patience_, [weak = weak_from_this()] {
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
    if (TimerThread::Clock::now() < last_pass_ + patience_) {
      Watch(last_pass_);
      return;
    }
  }
  for (const int turn : waiting) {
    End(turn, DeadlineExceededError("no layer ended within " + std::to_string(patience_.count()) +
                                    " ms while others waited for their turn"));
  }
}

}  // namespace trepak
