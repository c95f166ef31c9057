// How many tokens an iteration of Fela has, and by which numbers they are known (section IV-B).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_PLAN_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/runtime/net/status.h"

namespace trepak {

// What a user, or the tuning, has decided on.
struct FelaRules {
  std::vector<uint32_t> batches;               // by worker, samples of an iteration
  uint32_t threshold = 1;                      // samples of a T-1 token that make full use of one
  std::vector<uint32_t> weights;               // by sub-model; each a multiple of the one before
  std::vector<std::vector<uint32_t>> subsets;  // by sub-model, who may train it (CTD); empty: all
  bool depth_first = true;                     // ADS; else tokens go by their numbers
  bool hierarchical = true;                    // HF: a sub-bucket per worker; else one for all
  bool recompute = true;                       // others may make activations anew that one holds
  uint32_t staleness = 0;                      // iterations that a worker may be ahead of (SSP)
};

// A stage is what tokens of one kind do. Stages 1 to M train the sub-models forward, where the last
// one computes the loss and goes backward at once; stages M + 1 to 2M - 1 go backward through the
// sub-models M - 1 to 1. The paper has no backward tokens: they are an addition.
//
// Thread safety: none is needed, it does not change.
class FelaPlan {
 public:
  // Fails, naming what is wrong, for rules that no iteration can follow.
  static Status Check(const FelaRules& rules);

  // Of rules that were checked.
  explicit FelaPlan(FelaRules rules);

  const FelaRules& rules() const { return rules_; }
  uint32_t workers() const { return static_cast<uint32_t>(rules_.batches.size()); }
  uint32_t submodels() const { return static_cast<uint32_t>(rules_.weights.size()); }
  uint32_t stages() const { return 2 * submodels() - 1; }

  // Of an iteration, at most: their numbers are smaller.
  uint32_t samples() const { return first_samples_.back() + rules_.batches.back(); }

  // From 1 on, as stages are.
  uint32_t SubmodelOf(uint32_t stage) const {
    return stage <= submodels() ? stage : 2 * submodels() - stage;
  }
  bool IsBackward(uint32_t stage) const { return stage > submodels(); }

  // T-1 tokens of a worker's samples, if it comes with so many: its share of equation 2's n_1,
  // rounded up, and never more than there are samples.
  uint32_t FirstTokens(uint32_t worker, uint32_t samples) const;

  // A T-1 token, and its samples among those of all workers.
  struct Part {
    uint32_t token = 0;
    uint32_t first = 0;
    uint32_t samples = 0;
  };

  // The i-th T-1 token of a worker that comes with so many samples, which has as many as the others
  // or one more or less.
  Part PartOf(uint32_t worker, uint32_t samples, uint32_t i) const;

  // The worker whose samples a T-1 token is of.
  uint32_t OwnerOf(uint32_t first_token) const {
    const auto next = std::upper_bound(first_tokens_.begin(), first_tokens_.end(), first_token);
    return static_cast<uint32_t>(next - first_tokens_.begin()) - 1;
  }

  // T-i tokens, of forward stage i, at most; and the number of the first one.
  uint32_t Tokens(uint32_t stage) const { return tokens_[stage - 1]; }
  uint32_t FirstOfStage(uint32_t stage) const { return offsets_[stage - 1]; }

  // T-i tokens that a token of the next stage is made of, at most.
  uint32_t GroupOf(uint32_t stage) const {
    return rules_.weights[stage] / rules_.weights[stage - 1];
  }

  // Of the token that goes backward through what this one went forward through, and back.
  uint32_t BackwardOf(uint32_t forward) const { return offsets_.back() + forward; }
  uint32_t ForwardOf(uint32_t backward) const { return backward - offsets_.back(); }

  // What the token of a number does; 0: there is no such token.
  uint32_t StageOf(uint32_t token) const;

  // Numbers of tokens are smaller.
  uint32_t numbers() const { return 2 * offsets_.back(); }

  // Whether this worker may train a sub-model, and whether not all may.
  bool MayTrain(uint32_t worker, uint32_t submodel) const;
  bool IsConditional(uint32_t submodel) const { return !Subset(submodel).empty(); }
  const std::vector<uint32_t>& Subset(uint32_t submodel) const {
    static const std::vector<uint32_t> all;
    return rules_.subsets.empty() ? all : rules_.subsets[submodel - 1];
  }

 private:
  FelaRules rules_;
  std::vector<uint32_t> first_tokens_;   // by worker
  std::vector<uint32_t> first_samples_;  // by worker
  std::vector<uint32_t> tokens_;         // by forward stage, from 0 on
  std::vector<uint32_t> offsets_;        // by forward stage, from 0 on; last: of all of them
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_PLAN_H_
