// Whom helpers go to: sub-buckets that have tokens for others (Fela, section III-E).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_STRAGGLERS_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_STRAGGLERS_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "ops/runtime/fela/fela_token.h"

namespace trepak {

// Kept in order, so that a helper need not look at all of them.
//
// Thread safety: none; its owner sees to it.
class FelaStragglers {
 public:
  FelaStragglers(uint32_t submodels, uint32_t workers)
      : orders_(submodels), ranks_(workers, kNobody) {}

  // What is to be known of a straggler. `has`: by sub-model, from 0 on, whether its sub-bucket has
  // a token that another worker may take.
  void Update(uint32_t straggler, uint32_t helpers, uint32_t completed,
              const std::vector<bool>& has) {
    const Rank rank{helpers, completed, straggler};
    for (size_t i = 0; i < orders_.size(); ++i) {
      orders_[i].erase(ranks_[straggler]);
      if (has[i]) {
        orders_[i].insert(rank);
      }
    }
    ranks_[straggler] = rank;
  }

  // The one with the fewest helpers, then the slowest progress, of those that have tokens of any of
  // these sub-models, from 1 on; kNoWorker: there is none.
  uint32_t First(const std::vector<uint32_t>& submodels) const {
    Rank first = kNobody;
    for (const uint32_t submodel : submodels) {
      const std::set<Rank>& order = orders_[submodel - 1];
      first = order.empty() ? first : std::min(first, *order.begin());
    }
    return std::get<2>(first);
  }

 private:
  using Rank = std::tuple<uint32_t, uint32_t, uint32_t>;  // helpers, tokens completed, worker
  static constexpr Rank kNobody{kNoWorker, kNoWorker, kNoWorker};

  std::vector<std::set<Rank>> orders_;  // by sub-model
  std::vector<Rank> ranks_;             // by worker: its last one
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_STRAGGLERS_H_
