// Token Generator: makes tokens of those that workers have completed (Fela, section III-A).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_GENERATOR_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_GENERATOR_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "ops/runtime/fela/fela_plan.h"
#include "ops/runtime/fela/fela_token.h"

namespace trepak {

// Of one iteration. A T-(i+1) token is made as soon as there are as many completed T-i tokens as it
// needs. With HF those of one worker's samples come together first, so that who trains its own
// samples fetches nothing; what is left over comes together as it is completed, as does all without
// HF. The last token of a stage takes what is left.
//
// Thread safety: none; its owner sees to it. The plan must outlive it.
class FelaGenerator {
 public:
  explicit FelaGenerator(const FelaPlan& plan);

  // Makes the T-1 tokens of a worker that comes with so many samples; of each worker once. Returns
  // all new ones.
  std::vector<uint32_t> Begin(uint32_t worker, uint32_t samples);
  bool has_begun(uint32_t worker) const { return has_begun_[worker]; }

  // Makes what can be made now that a token is completed: forward and backward ones. Returns their
  // numbers.
  std::vector<uint32_t> Complete(uint32_t token);

  const FelaToken& token(uint32_t id) const { return tokens_[id]; }

  // Whether all tokens of a stage, that there are to be, were made and completed.
  bool IsComplete(uint32_t stage) const;

  // Whether nothing is left to be made and completed.
  bool is_over() const { return IsComplete(plan_.stages()); }

 private:
  struct Stage {
    uint32_t made = 0;
    uint32_t completed = 0;
    // Of a forward stage.
    bool all_made = false;
    std::deque<uint32_t> pool;                    // completed, and part of none; in that order
    std::vector<uint32_t> home;                   // by worker: tokens of its own samples, in all
    std::vector<uint32_t> home_made;              // by worker: of those, made so far
    std::vector<std::vector<uint32_t>> gathered;  // by worker: like `pool`, of its own samples
  };

  Stage& stage(uint32_t number) { return stages_[number - 1]; }
  const Stage& stage(uint32_t number) const { return stages_[number - 1]; }

  void CompleteForward(const FelaToken& token, std::vector<uint32_t>* made);
  // Makes the last token of a stage of what is left, once nothing more can come, and so on.
  void Close(std::vector<uint32_t>* made);
  // A token of the stage behind this one. `home`: whose samples these are; kNoWorker: of several.
  uint32_t Join(uint32_t number, std::vector<uint32_t> needs, uint32_t home);
  void Add(FelaToken token, std::vector<uint32_t>* made);

  const FelaPlan& plan_;
  std::vector<FelaToken> tokens_;  // by number; those that were not made have no stage
  std::vector<Stage> stages_;
  std::vector<bool> has_begun_;  // by worker
  uint32_t begun_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_GENERATOR_H_
