// How long somebody waited, whoever it was.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_WAIT_CLOCK_H_
#define TREPAK_OPS_RUNTIME_DYMEM_WAIT_CLOCK_H_

#include <chrono>
#include <memory>
#include <mutex>

namespace trepak {

// Counts the time in which at least one waits: two who wait at the same time count once.
//
// Thread safety: every method may be called from any thread.
class WaitClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Somebody waits until what is returned is destroyed, which must not outlive this.
  [[nodiscard]] std::shared_ptr<void> Wait() {
    Change(1);
    return std::shared_ptr<void>(nullptr, [this](void*) { Change(-1); });
  }

  // So far, those who wait now included.
  double seconds() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::chrono::duration<double>(waited_ + Since(Clock::now())).count();
  }

 private:
  void Change(int by) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Clock::time_point now = Clock::now();
    waited_ += Since(now);
    waiting_ += by;
    changed_ = now;
  }
  // What was waited from the last change until now. Under mutex_.
  Clock::duration Since(Clock::time_point now) const {
    return waiting_ > 0 ? now - changed_ : Clock::duration::zero();
  }

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  int waiting_ = 0;
  Clock::time_point changed_;  // last
  Clock::duration waited_ = Clock::duration::zero();
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_WAIT_CLOCK_H_
