// A variable's last round: its sum, which comes piece by piece, and who waits for it.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_GRADIENT_ROUND_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_GRADIENT_ROUND_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/payload.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Thread safety: none, the owner locks. What it returns as a Delivery is to be run without a lock.
class GradientRound {
 public:
  using Clock = std::chrono::steady_clock;
  // Gets the sum, in memory of its own; or why there is none.
  using Callback = std::function<void(const Status&, Payload)>;

  // Somebody who is to be called now; nobody, if there is no callback.
  struct Delivery {
    Callback callback;
    Status status;
    Payload result;

    void Run() {
      if (callback) {
        callback(status, std::move(result));
      }
    }
  };

  // Begins the next round, whose sum has so many bytes. The one before must be delivered.
  void Begin(size_t pieces, size_t bytes);

  // Where the sum's pieces belong.
  Payload& result() { return result_; }

  // Whether a piece is still to come.
  bool Misses(size_t piece) const { return piece < arrived_.size() && !arrived_[piece]; }

  // A piece is in the result.
  Delivery Arrive(size_t piece);

  // Somebody wants the sum. `whose`: for messages.
  Delivery Deliver(Callback callback, const std::string& whose);

  // Takes back what waits for the sum.
  Callback Abandon() { return std::exchange(waiting_, nullptr); }

  // The step that has pushed the round has pushed all.
  void Commit() { committed_ = true; }

  // Fails if a step begins anew before the round was delivered. `whose`: for messages.
  Status CheckDelivered(const std::string& whose) const;

  // Fails if the round was pushed by a step that was not committed.
  Status CheckCommitted(const std::string& whose) const;

  bool is_delivered() const { return delivered_; }
  bool is_complete() const { return missing_ == 0; }
  bool is_awaited() const { return waiting_ != nullptr; }
  Clock::time_point since() const { return since_; }  // that it is awaited

 private:
  std::vector<bool> arrived_;  // by piece
  size_t missing_ = 0;
  Payload result_;  // until it is delivered
  bool delivered_ = true;
  bool committed_ = false;
  Callback waiting_;
  Clock::time_point since_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_GRADIENT_ROUND_H_
