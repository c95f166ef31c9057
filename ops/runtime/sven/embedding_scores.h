// How much each row is worth keeping near.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_SCORES_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ops/runtime/net/status.h"

namespace trepak {

// What makes a row's score. The lowest leaves the fast tier first.
enum class RowPolicy {
  kNone,   // nobody counts
  kScore,  // equation 6.3: w becomes (1 - decay) w + decay x once a step
  kLru,    // when it was last used
  kLfu,    // how often it was used
};

// The scores of all rows of some shards, of four bytes each while there is a policy.
//
// Thread safety: needs outside locking; const methods may be called from many threads at once.
class EmbeddingScores {
 public:
  // Forgets all, and begins. `rows`: by shard. `decay`: of kScore, above 0, below 1.
  Status Begin(RowPolicy policy, double decay, const std::vector<int64_t>& rows);

  RowPolicy policy() const { return policy_; }
  bool is_active() const { return policy_ != RowPolicy::kNone; }

  // A step begins, of which the rows that occur are counted after that.
  void BeginStep();

  // A row occurs; x is p k + n l of equation 6.3, the weighted number of samples, not negative.
  void Count(size_t shard, int64_t row, float x) {
    float& score = scores_[shard].get()[row];
    if (policy_ == RowPolicy::kLru) {
      score = static_cast<float>(scale_);
    } else {
      score += gain_ * x;
    }
  }

  void Forget(size_t shard, int64_t row) { scores_[shard].get()[row] = 0; }

  // The score: of kScore, w; of kLru, the number of the step; of kLfu, how often.
  double Of(size_t shard, int64_t row) const {
    const double stored = scores_[shard].get()[row];
    return policy_ == RowPolicy::kScore ? stored / scale_ : stored;
  }

  // Scores' order in 32 bits: a float that is not negative compares as its bits do.
  uint32_t Key(size_t shard, int64_t row) const;

 private:
  struct Free {
    void operator()(float* scores) const { std::free(scores); }
  };

  void Multiply(double factor);

  RowPolicy policy_ = RowPolicy::kNone;
  double decay_ = 0;
  // kScore keeps w multiplied by scale, which grows by 1 / (1 - decay) with each step, so that a
  // row that does not occur decays without being touched. kLru: the number of the step.
  double scale_ = 0;
  float gain_ = 0;  // what x is multiplied by
  std::vector<int64_t> rows_;
  std::vector<std::unique_ptr<float, Free>> scores_;  // by shard
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_SCORES_H_
