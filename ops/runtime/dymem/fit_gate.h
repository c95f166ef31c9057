// Whether a training step fits into the pool without swaps, by what earlier steps of its graph
// needed.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace trepak {

// What the steps of one graph needed. A step needs what lives and what is away, at most.
//
// Thread safety: every method may be called from any thread.
class FitGate {
 public:
  // For holes, and what is not seen between two notes: an eighth of the need.
  static constexpr size_t kReservePart = 8;
  static size_t WithReserve(size_t needed) { return needed + needed / kReservePart; }

 private:
  friend class FitStep;
  enum class Outcome { kNone, kSwapped, kStayed, kShort };

  bool Begin(size_t limit);
  void End(size_t needed, Outcome outcome);

  std::mutex mutex_;
  // Guarded by mutex_. Of the step that ended last:
  Outcome last_ = Outcome::kNone;
  size_t needed_ = 0;
  size_t limit_ = 0;  // when a step last began
  // Since a step did not fit, at most what one needed that swapped: other steps need more, as their
  // layers run in no order.
  bool was_short_ = false;
  size_t short_need_ = 0;
};

// One step. The first one of a graph swaps. Each later one stays in memory whole if the one before
// it would have fitted, with room for holes, or has fitted. If a step does not fit after all (its
// batch is larger, or holes are), its tensors leave at the shortage, and it takes a clearly smaller
// need to try again.
//
// Thread safety: every method may be called from any thread.
class FitStep {
 public:
  // `limit`: of the pool, without beta.
  FitStep(std::shared_ptr<FitGate> gate, size_t limit)
      : gate_(std::move(gate)), stays_(gate_->Begin(limit)), stayed_(stays_) {}
  ~FitStep();
  FitStep(const FitStep&) = delete;
  FitStep& operator=(const FitStep&) = delete;

  bool stays() const { return stays_; }
  // What it needs now: bytes that live or are away.
  void Note(size_t needed);
  // A tensor that stayed had to leave. Whether it is the first one.
  bool Short() { return stays_.exchange(false); }

 private:
  const std::shared_ptr<FitGate> gate_;
  std::atomic<bool> stays_;
  const bool stayed_;  // at first
  std::atomic<size_t> needed_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_FIT_GATE_H_
