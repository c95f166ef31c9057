// The step that a rank takes: which parameters it goes on from, and who awaits its end.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_STEP_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_STEP_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ops/runtime/net/error_latch.h"
#include "ops/runtime/parameters/adopted_parameters.h"

namespace trepak {

// At most one step, or drain, is under way: from Begin until End, whose callback may begin the
// next.
//
// Thread safety: every method may be called from any thread. Under its lock the step takes no other
// but the latch's, and runs no callback.
class ElasticBspStep {
 public:
  // Gets the parameters to go on from, or why there are none.
  using Callback = std::function<void(const Status&, Payload)>;

  // `me`: the rank, for messages. No step begins once there is an error in the latch.
  ElasticBspStep(std::string me, ElementType type, size_t bytes, std::shared_ptr<ErrorLatch> errors)
      : me_(std::move(me)), bytes_(bytes), errors_(std::move(errors)), adopted_(type, bytes) {}

  // Whether nothing has failed, and these are as many parameters as the job has.
  Status Check(const Payload& values) const {
    TREPAK_RETURN_IF_ERROR(errors_->status());
    if (values.size() != bytes_) {
      return InvalidArgumentError(me_ + " has " + std::to_string(values.size()) +
                                  " bytes of parameters, not " + std::to_string(bytes_));
    }
    return OkStatus();
  }

  // Whether these differ from the parameters that the step went on from.
  bool HasChanged(const Payload& values) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return !adopted_.Are(values);
  }

  // Begins a step that has made these values, and returns what it has changed. If it can't, tells
  // the callback why.
  std::optional<Payload> Begin(const Payload& values, Callback callback) {
    Status status;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      status = Check(values);  // whoever latches a later error calls End after this
      if (status.ok() && (callback_ || !adopted_.any())) {
        status = FailedPreconditionError(me_ +
                                         " ends a step, or drains, while another step or drain "
                                         "has not ended, or before it has fetched parameters");
      }
      if (status.ok()) {
        callback_ = std::move(callback);
        return adopted_.Change(values);
      }
    }
    callback(status, Payload());
    return std::nullopt;
  }

  // Takes parameters, which the step under way, or else the next one, goes on from. Returns whether
  // a step is under way: a failure may have ended it.
  bool Receive(Payload values) {
    std::lock_guard<std::mutex> lock(mutex_);
    adopted_.Adopt(values);
    received_ = callback_ ? std::move(values) : Payload();
    return callback_ != nullptr;
  }

  // Ends the step, if one is under way: its callback gets what has been received.
  void End(const Status& status) {
    Callback callback;
    Payload received;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      callback.swap(callback_);
      received = std::exchange(received_, {});
    }
    if (callback) {
      callback(status, status.ok() ? std::move(received) : Payload());
    }
  }

 private:
  const std::string me_;
  const size_t bytes_;
  const std::shared_ptr<ErrorLatch> errors_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  AdoptedParameters adopted_;
  Payload received_;   // by the step under way
  Callback callback_;  // its; none if none is under way
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_STEP_H_
