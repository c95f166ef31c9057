// Runs callbacks at given times, on a thread of its own.
//
// Waiting costs no CPU: the thread sleeps until the earliest callback is due. What waits for time
// to pass (emulated accelerators, injected delays, periodic flushes) shares this one mechanism.

#ifndef TREPAK_OPS_RUNTIME_NET_TIMER_THREAD_H_
#define TREPAK_OPS_RUNTIME_NET_TIMER_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

namespace trepak {

// Thread safety: RunAt may be called from any thread, callbacks included. The object owns its
// thread, which starts with the first callback.
class TimerThread {
 public:
  using Clock = std::chrono::steady_clock;

  TimerThread() = default;
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

  // Runs the callbacks that still wait, at once, and ends the thread: none is lost. No other thread
  // may call RunAt by then.
  ~TimerThread();

  // Calls `callback` on the thread at `when` or as soon after as it can, at once if that is past.
  // Callbacks of the same time run in the order in which they came. They must not block or throw:
  // they hold up all that are due after them.
  void RunAt(Clock::time_point when, std::function<void()> callback);

  // The one that all of this process share. It is never destroyed, since ops of TensorFlow may use
  // it until the process has ended.
  static TimerThread& Global();

 private:
  struct Entry {
    Clock::time_point when;
    uint64_t number;
    std::function<void()> callback;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };

  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::priority_queue<Entry, std::vector<Entry>, Later> entries_;
  uint64_t next_number_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_TIMER_THREAD_H_
