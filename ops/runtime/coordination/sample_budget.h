// How many samples all ranks have taken together: what an epoch is when ranks go at their own pace.

#ifndef TREPAK_OPS_RUNTIME_COORDINATION_SAMPLE_BUDGET_H_
#define TREPAK_OPS_RUNTIME_COORDINATION_SAMPLE_BUDGET_H_

#include <cstdint>
#include <mutex>
#include <utility>

namespace trepak {

// A rank is dealt batches, and says how many samples they had with the gradient it made of them.
// In rounds all ranks count the samples of the same ones in the same order, so an epoch ends on all
// of them with the same round. Where ranks' changes go to parameter servers, each counts what it
// has heard of, and an epoch's end is a drain, in which all wait for each other.
//
// Thread safety: every method may be called from any thread.
class SampleBudget {
 public:
  // A batch has been dealt to this rank.
  void Deal(uint64_t samples) {
    std::lock_guard<std::mutex> lock(mutex_);
    dealt_ += samples;
  }

  // Returns what has been dealt since the last call.
  uint64_t TakeDealt() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(dealt_, 0);
  }

  // This rank has applied a round of so many samples, of all ranks.
  void Count(uint64_t samples) {
    std::lock_guard<std::mutex> lock(mutex_);
    counted_ += samples;
  }

  // Returns where an epoch of so many samples ends that begins now. What the rounds of the epoch
  // before had too many is the new one's, if both are of the same dataset.
  uint64_t EndOfEpoch(uint64_t dataset, uint64_t samples) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(dataset_, dataset) != dataset) {
      end_ = counted_;
      dealt_ = 0;
    }
    const bool goes_on = end_ <= counted_ && counted_ < end_ + samples;
    end_ = (goes_on ? end_ : counted_) + samples;
    return end_;
  }

  bool HasReached(uint64_t end) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return counted_ >= end;
  }

  // That of this process.
  static SampleBudget& Global() {
    static auto* const budget = new SampleBudget;
    return *budget;
  }

 private:
  mutable std::mutex mutex_;
  uint64_t dealt_ = 0;    // Guarded by mutex_.
  uint64_t counted_ = 0;  // Guarded by mutex_.
  uint64_t end_ = 0;      // Guarded by mutex_; of the latest epoch
  uint64_t dataset_ = 0;  // Guarded by mutex_; of the latest epoch
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_COORDINATION_SAMPLE_BUDGET_H_
