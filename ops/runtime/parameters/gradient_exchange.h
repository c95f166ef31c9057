// How gradients leave a training step and how their sums come back, whatever carries them.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_GRADIENT_EXCHANGE_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_GRADIENT_EXCHANGE_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/parameters/gradient_round.h"

namespace trepak {

// Variables have keys, the same on all ranks. A round of a variable is one gradient of each rank.
//
// Thread safety: every method may be called from any thread; callbacks run in one of the exchange's
// threads or in the caller's, without a lock, and must not block.
class GradientExchange {
 public:
  using Callback = GradientRound::Callback;

  virtual ~GradientExchange() = default;

  // Pushes this rank's gradient, the next round of its variable, without waiting. It is read until
  // it has travelled: nobody may write to it any more. What comes back is the sum over all ranks
  // times `factor`, and divided by the number of ranks if it is to be averaged. `pull`: ask for it
  // at once, where sums must be asked for.
  virtual Status PushGradient(uint32_t key, Precedence precedence, Payload values, double factor,
                              bool average, bool pull) = 0;

  // Hands the result of the round that was pushed last to `callback`, once, when all of it has
  // come.
  void Deliver(uint32_t key, Callback callback);

  // Ends the waiting of `Deliver`, whose callback gets an error; the round stays undelivered.
  void CancelDeliver(uint32_t key);

  // Says that all that a training step pushes has been pushed.
  Status CommitStep(const std::vector<uint32_t>& keys);

  // Says of each variable whether a round was pushed and not delivered. Fails if such a round can't
  // come any more, or if it was pushed by a step that was not committed: applied alone, it would
  // leave the model between two steps.
  Status Pending(const std::vector<uint32_t>& keys, std::vector<bool>* pending);

 protected:
  // All three require mutex_.
  virtual Status Usable() const = 0;                   // why nothing can travel any more
  virtual GradientRound* FindRound(uint32_t key) = 0;  // the last one; null: no such variable
  virtual std::string Whose(uint32_t key) const = 0;   // this rank and the variable, if known

  mutable std::mutex mutex_;

 private:
  // Requires mutex_. Null, with `status`, if the variable has no round that could be used.
  GradientRound* UsableRound(uint32_t key, Status* status);
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_GRADIENT_EXCHANGE_H_
