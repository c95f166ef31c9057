// Whether a training step fits into the pool without swaps, by what earlier steps needed.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace trepak {

// A step needs what lives and what is away, at most. The first one swaps, and each later one stays
// in memory whole if the one before it would have fitted, with room for holes. If a step does not
// fit after all (its batch is larger, or holes are), its tensors leave at the shortage, and it
// takes a clearly smaller need to try again.
//
// Thread safety: every method may be called from any thread.
class FitGate {
 public:
  // For holes, and what is not seen between two calls of Keeps: an eighth of the need.
  static constexpr size_t kReservePart = 8;

  // Whether a tensor that would leave now stays. `step`: tells steps apart. `needed`: bytes that
  // live or are away now. `limit`: of the pool, without beta.
  bool Keeps(int64_t step, size_t needed, size_t limit);
  // Of the step that runs, where no tensor would leave.
  void Note(size_t needed);
  // A tensor that stayed had to leave.
  void Short();

  // Steps that stayed in memory whole so far, the one that runs included.
  int64_t kept_steps() const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<int64_t> step_;  // none yet
  bool keeps_ = false;
  size_t needed_ = 0;      // at most, in the step that runs
  size_t short_need_ = 0;  // of the last step that did not fit; 0: none
  int64_t kept_steps_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_
