// Which rounds of RNA a rank contributes to: what its steps write, and the probe that it answers.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_CONTRIBUTOR_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_CONTRIBUTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "ops/runtime/rna/rna_contributions.h"
#include "ops/runtime/rna/rna_round.h"

namespace trepak {

// A rank is ready for the round that it is probed for as soon as it has something to contribute.
//
// Thread safety: every method may be called from any thread. The lock is held while the coordinator
// is answered, so that it hears of a drain after all answers before that; no other lock of RNA's is
// taken under it.
class RnaContributor {
 public:
  using Clock = std::chrono::steady_clock;
  // Sends to the coordinator, and waits for nothing.
  using Answer = std::function<Status(MessageKind kind, uint64_t round, uint8_t flags)>;

  // What has happened here so far.
  struct Counters {
    uint64_t dropped = 0;  // gradients that were too stale
    uint64_t not_finite = 0;
    uint64_t steps = 0;  // that were timed, from one write to the next
    uint64_t step_nanoseconds = 0;
    uint64_t copy_nanoseconds = 0;  // in which gradients were copied in and out
  };

  // How far this rank has come.
  struct Progress {
    uint64_t started = 0;        // rounds
    uint64_t taken = 0;          // rounds that have this rank's contribution
    uint64_t due = 0;            // where steps are aligned: round of the next step
    bool has_gradients = false;  // that no round has taken
  };

  // `me`: how errors name this rank.
  RnaContributor(const RnaRules& rules, std::string me, Answer answer);

  // Times the step that ends now. Returns for how long steps have followed each other, never
  // `pause` apart, while there were gradients that no round has taken.
  Clock::duration CountStep(Clock::time_point now, Clock::duration pause);

  // Takes over the gradient of the step that ended at `now`; not while this drains.
  Status Write(Gradient gradient, Clock::time_point now);

  // The coordinator asks to be told when there is something for a round.
  Status Probe(uint64_t round);

  // A round starts, which answers no probe any more.
  void Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    probe_.reset();
    ++started_;
  }

  // Hands over what goes into the oldest round that was started and not taken. The round before it
  // has ended.
  Contribution Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++taken_;
    return contributions_.Take(version_);
  }

  // That round ends; `changes`: the parameters.
  void End(bool changes) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++ended_;
    version_ += changes ? 1 : 0;
  }

  // Tells the coordinator that this rank computes no more.
  Status Drain();

  // Training goes on, its steps after so many rounds if they are aligned.
  void EndDrain(std::optional<uint64_t> rounds) {
    std::lock_guard<std::mutex> lock(mutex_);
    drains_ = false;
    due_ = rounds.value_or(due_);  // ranks have taken different numbers of steps
  }

  Progress progress() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {started_, taken_, due_, !contributions_.empty()};
  }

  Counters counters() const;
  void CountCopying(std::chrono::nanoseconds took) {
    std::lock_guard<std::mutex> lock(mutex_);
    counters_.copy_nanoseconds += static_cast<uint64_t>(took.count());
  }

 private:
  // All require mutex_.
  // Of the parameters that the next round is to change; one that is under way is taken to change
  // them too.
  uint64_t NextVersion() const { return version_ + (started_ - ended_); }
  Status AnswerProbe();
  void WarnOfNotFinite() const;

  const RnaRules rules_;
  const std::string me_;
  const Answer answer_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  RnaContributions contributions_;
  std::optional<uint64_t> probe_;  // not answered yet
  uint64_t started_ = 0;           // rounds
  uint64_t taken_ = 0;             // rounds
  uint64_t ended_ = 0;             // rounds
  uint64_t version_ = 0;           // of the parameters after these
  uint64_t due_ = 0;
  bool drains_ = false;
  std::optional<Clock::time_point> written_;  // last, since the last drain
  Clock::time_point stepping_since_;          // with gradients that no round has taken
  Counters counters_;                         // but for what contributions_ counts
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_CONTRIBUTOR_H_
