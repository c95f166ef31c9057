#include "ops/runtime/net/timer_thread.h"

#include <sys/prctl.h>

#include <utility>

namespace trepak {

TimerThread::~TimerThread() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TimerThread::RunAt(Clock::time_point when, std::function<void()> callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.push({when, next_number_++, std::move(callback)});
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { Loop(); });
    }
  }
  changed_.notify_one();
}

TimerThread& TimerThread::Global() {
  static TimerThread* const timer = new TimerThread;
  return *timer;
}

void TimerThread::Loop() {
  // Linux may wake a thread up to 50 us late, to save power; here it shall be in time.
  prctl(PR_SET_TIMERSLACK, 1UL);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (entries_.empty()) {
      if (stopping_) {
        return;
      }
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point when = entries_.top().when;
    if (!stopping_ && Clock::now() < when) {
      changed_.wait_until(lock, when);
      continue;
    }
    // top() is const, but the entry goes with the next line.
    std::function<void()> callback = std::move(const_cast<Entry&>(entries_.top()).callback);
    entries_.pop();
    lock.unlock();
    callback();
    callback = nullptr;  // what it holds is freed without the lock, too
    lock.lock();
  }
}

}  // namespace trepak
