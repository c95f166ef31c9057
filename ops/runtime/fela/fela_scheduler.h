// What the token server decides: which tokens there are, and who trains which (Fela, section III).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_SCHEDULER_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_bucket.h"
#include "ops/runtime/fela/fela_chunk_name.h"
#include "ops/runtime/fela/fela_generator.h"
#include "ops/runtime/fela/fela_info_mapping.h"
#include "ops/runtime/fela/fela_permits.h"
#include "ops/runtime/fela/fela_plan.h"
#include "ops/runtime/fela/fela_waiting.h"

namespace trepak {

// Workers begin an iteration, ask for tokens and report them; it answers with orders. It knows no
// clock and no network, so that it runs in virtual time, too.
//
// Thread safety: none; its owner sees to it.
class FelaScheduler {
 public:
  // A chunk that a token's training reads.
  struct Input {
    FelaChunkKind kind = FelaChunkKind::kSamples;
    uint32_t token = 0;
    uint32_t holder = 0;  // the worker that has it
    uint32_t samples = 0;
  };
  // Samples of a token that follow each other among those of all workers.
  struct Range {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  struct Assignment {
    uint32_t worker = 0;
    uint32_t token = 0;
    uint32_t stage = 0;
    uint32_t samples = 0;
    bool recomputes = false;  // backward, of another's activations: goes forward first
    std::vector<Input> inputs;
    std::vector<Range> ranges;
  };
  struct Orders {
    std::vector<Assignment> assignments;
    std::vector<uint32_t> trained;  // sub-models all of whose tokens are done: the last one first
    bool reported = false;          // a token is, for the first time
    bool over = false;              // the iteration is, with this
    uint64_t samples = 0;           // of it, if it is over
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
  };

  // Of rules that were checked.
  explicit FelaScheduler(FelaRules rules);

  const FelaPlan& plan() const { return plan_; }

  // A worker comes to the next iteration with its samples.
  Status Begin(uint32_t worker, uint64_t iteration, uint32_t samples, Orders* orders);

  // It is free: its first request of an iteration. One that comes after the end has no answer.
  Status Request(uint32_t worker, uint64_t iteration, Orders* orders);

  // It has trained what it was given, and asks for the next token: before those that wait, since it
  // has what the new ones need.
  Status Report(uint32_t worker, uint64_t iteration, uint32_t token, Orders* orders);

  uint64_t iteration() const { return iteration_; }
  Counters counters() const;

  // Workers that have not begun the iteration, and tokens that workers have in hand: by worker.
  std::vector<uint32_t> NotBegun() const;
  std::vector<std::pair<uint32_t, uint32_t>> InHand() const;

 private:
  // What lives for one iteration.
  struct Iteration {
    Iteration(const FelaPlan& plan, const FelaPermits& permits)
        : generator(plan),
          info(plan.numbers(), plan.workers()),
          bucket(plan, permits, generator, info),
          waiting(permits, plan.workers()),
          samples(plan.workers()),
          in_hand(plan.workers(), kNone) {}
    FelaGenerator generator;
    FelaInfoMapping info;
    FelaBucket bucket;
    FelaWaiting waiting;
    std::vector<uint32_t> samples;  // by worker
    std::vector<uint32_t> in_hand;  // by worker: the token; kNone
    uint32_t trained = 0;           // sub-models
  };
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // Returns the workers in whose sub-buckets they are.
  std::vector<uint32_t> AddAll(const std::vector<uint32_t>& made, uint32_t reporter);
  bool Serve(uint32_t worker, Orders* orders);
  void ServeOrWait(uint32_t worker, Orders* orders);
  void ServeWaiting(const std::vector<uint32_t>& places, Orders* orders);
  uint32_t FirstToServe(const std::vector<uint32_t>& places) const;
  void EndWhatIsTrained(Orders* orders);
  Assignment Assign(uint32_t worker, const FelaToken& token);
  void AddInputs(const FelaToken& forward, Assignment* assignment) const;
  // The T-1 tokens that a forward token is made of.
  void AddLeaves(const FelaToken& forward, std::vector<uint32_t>* leaves) const;
  Status CheckIteration(uint32_t worker, uint64_t iteration) const;
  Range RangeOf(uint32_t first_token) const;

  const FelaPlan plan_;
  const FelaPermits permits_;
  uint64_t iteration_ = 0;
  std::unique_ptr<Iteration> now_;
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_SCHEDULER_H_
