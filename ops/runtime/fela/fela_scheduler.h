// What the token server decides: which tokens there are, and who trains which (Fela, section III).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_SCHEDULER_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_iteration.h"
#include "ops/runtime/fela/fela_permits.h"
#include "ops/runtime/fela/fela_plan.h"

namespace trepak {

// Workers begin an iteration, ask for tokens and report them; it answers with orders. It knows no
// clock and no network, so that it runs in virtual time, too.
//
// A token's age is its iteration (SSP, section VI). As many iterations are open as the staleness
// bound lets workers be ahead, and one: the oldest one's tokens go first, and no token of iteration
// k goes before iteration k - staleness - 1 is over. A bound of 0 is BSP.
//
// Thread safety: none; its owner sees to it.
class FelaScheduler {
 public:
  using Input = FelaIteration::Input;
  using Range = FelaIteration::Range;
  using Assignment = FelaIteration::Assignment;
  struct Orders {
    std::vector<Assignment> assignments;
    std::vector<uint32_t> trained;  // sub-models all of whose tokens are done: the last one first
    bool reported = false;          // a token is, for the first time
    std::vector<uint64_t> samples;  // of each iteration that is over, the oldest first
    std::vector<uint32_t> ahead;    // workers that may begin their next one before theirs is over

    bool over() const { return !samples.empty(); }  // an iteration is, with this
  };
  struct Counters {
    uint64_t iterations = 0;  // that are over
    uint64_t tokens = 0;      // that were completed
    uint64_t helped = 0;      // of them, taken from another worker's sub-bucket
    uint64_t recomputed = 0;  // of them, with activations made anew
    uint64_t remote = 0;      // inputs that another worker had
    uint64_t inputs = 0;      // in all
    uint64_t duplicates = 0;  // reports of what was reported before
    uint64_t waits = 0;       // requests for which there was no token at once
    uint64_t ahead = 0;       // of them, answered by the leave to begin the next iteration
    uint64_t most_ahead = 0;  // iterations that a worker has begun before the oldest was over
  };

  // Of rules that were checked.
  explicit FelaScheduler(FelaRules rules);

  const FelaPlan& plan() const { return plan_; }

  // A worker comes to the next iteration with its samples.
  Status Begin(uint32_t worker, uint64_t iteration, uint32_t samples, Orders* orders);

  // It is free: its first request of an iteration. One that comes after the end has no answer,
  // where workers are not to be ahead. `to_the_end`: it stays in this iteration until that is over.
  Status Request(uint32_t worker, uint64_t iteration, Orders* orders, bool to_the_end = false);

  // It has trained what it was given, and asks for the next token: before those that wait, since it
  // has what the new ones need.
  Status Report(uint32_t worker, uint64_t iteration, uint32_t token, Orders* orders);

  // The oldest one that is not over.
  uint64_t iteration() const { return iteration_; }
  Counters counters() const;

  // Workers that have not begun the oldest iteration, and tokens that workers have in hand: by
  // worker.
  std::vector<uint32_t> NotBegun() const;
  std::vector<std::pair<uint32_t, uint32_t>> InHand() const;

  // Workers that have gone where this gives no orders, which others wait for; none if nobody waits.
  std::vector<uint32_t> Away() const;

 private:
  // Where a worker is.
  struct Place {
    uint64_t reached = 0;      // iterations that it has come to
    uint64_t iteration = 0;    // of the token that it has in hand
    uint32_t in_hand = kNone;  // that token
    bool to_the_end = false;   // see Request
  };
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  FelaIteration& At(uint64_t iteration) { return *open_[iteration - iteration_]; }
  bool ServeOf(FelaIteration* now, uint32_t worker, Orders* orders);
  bool Serve(uint32_t worker, Orders* orders);
  void ServeOrWait(uint32_t worker, Orders* orders);
  void ServeWaiting(FelaIteration* now, const std::vector<uint32_t>& places, Orders* orders);
  uint32_t FirstToServe(const FelaIteration& now, const std::vector<uint32_t>& places) const;
  bool Waits(uint32_t worker) const;
  void Wait(uint32_t worker);
  void EndWaiting(uint32_t worker);
  // Lets a worker begin its next iteration, if it may; says whether.
  bool LetAhead(uint32_t worker, Orders* orders);
  void EndWhatIsTrained(FelaIteration* now, Orders* orders);
  void EndTheOldest(Orders* orders);
  Status CheckIteration(uint32_t worker, uint64_t iteration) const;

  const FelaPlan plan_;
  const FelaPermits permits_;
  uint64_t iteration_ = 0;                           // the oldest one that is open
  std::deque<std::unique_ptr<FelaIteration>> open_;  // from that one on
  std::vector<Place> places_;                        // by worker
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_SCHEDULER_H_
