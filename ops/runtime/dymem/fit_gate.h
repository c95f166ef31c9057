// Whether a training step fits into the pool without swaps, by what earlier steps of its graph
// needed.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace trepak {

// A step needs what lives and what is away, at most. The first one swaps, and each later one stays
// in memory whole if the one before it would have fitted, with room for holes, or has fitted. If a
// step does not fit after all (its batch is larger, or holes are), its tensors leave at the
// shortage, and it takes a clearly smaller need to try again.
//
// Thread safety: every method may be called from any thread.
class FitGate {
 public:
  // For holes, and what is not seen between two calls of Note: an eighth of the need.
  static constexpr size_t kReservePart = 8;

  // A step begins. `limit`: of the pool, without beta.
  void Begin(size_t limit);
  // What the step that runs needs now: bytes that live or are away.
  void Note(size_t needed);
  // A tensor that stayed had to leave.
  void Short();

  // Whether the step that runs stays in memory whole, as far as is known.
  bool keeps() const;
  // Steps that stayed so far, the one that runs included.
  int64_t kept_steps() const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool has_run_ = false;  // a step, ever
  bool keeps_ = false;
  size_t needed_ = 0;      // at most, in the step that runs
  size_t short_need_ = 0;  // of the last step that did not fit; 0: none
  int64_t kept_steps_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_
