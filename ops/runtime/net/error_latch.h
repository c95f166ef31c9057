// Parks the failure of a background thread until somebody can return it.
//
// A background thread has no caller to return its Status to. It latches the failure here, and every
// later call of the foreground reports it, so that no error is lost and no call goes on in a broken
// state. The first failure wins: those that follow are its consequences.

#ifndef TREPAK_OPS_RUNTIME_NET_ERROR_LATCH_H_
#define TREPAK_OPS_RUNTIME_NET_ERROR_LATCH_H_

#include <atomic>
#include <mutex>

#include "ops/runtime/net/status.h"

namespace trepak {

// Thread safety: every method may be called from any thread at any time, except that the latch must
// outlive the calls. Never reset: build a new object to start afresh.
class ErrorLatch {
 public:
  ErrorLatch() = default;
  ErrorLatch(const ErrorLatch&) = delete;
  ErrorLatch& operator=(const ErrorLatch&) = delete;

  // Parks `status` if it is the first error. OK is ignored, so that a loop can latch each result.
  // Returns true if this call's error was the one parked.
  bool Latch(const Status& status) {
    if (status.ok()) {
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!first_.ok()) {
      return false;
    }
    first_ = status;
    failed_.store(true, std::memory_order_release);
    return true;
  }

  // The first error, or OK. Costs one atomic load while nothing has failed, so hot paths may ask.
  Status status() const {
    if (!failed_.load(std::memory_order_acquire)) {
      return OkStatus();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return first_;
  }

  bool ok() const { return !failed_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  Status first_;  // Guarded by mutex_.
  // Whether first_ holds an error. Written under mutex_, after first_; read without it.
  std::atomic<bool> failed_{false};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ERROR_LATCH_H_
