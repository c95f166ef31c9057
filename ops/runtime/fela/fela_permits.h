// Which workers may train the same sub-models (CTD; Fela, section III-F).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_PERMITS_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_PERMITS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ops/runtime/fela/fela_plan.h"

namespace trepak {

// Workers of one kind may train the same sub-models. There are few kinds: of most subsets two.
//
// Thread safety: none is needed, it does not change.
class FelaPermits {
 public:
  explicit FelaPermits(const FelaPlan& plan) {
    std::map<std::vector<uint32_t>, uint32_t> kinds;
    for (uint32_t worker = 0; worker < plan.workers(); ++worker) {
      std::vector<uint32_t> may;
      for (uint32_t submodel = 1; submodel <= plan.submodels(); ++submodel) {
        if (plan.MayTrain(worker, submodel)) {
          may.push_back(submodel);
        }
      }
      const auto [kind, is_new] = kinds.emplace(may, static_cast<uint32_t>(submodels_.size()));
      if (is_new) {
        submodels_.push_back(may);
      }
      kinds_.push_back(kind->second);
    }
  }

  uint32_t kinds() const { return static_cast<uint32_t>(submodels_.size()); }
  uint32_t KindOf(uint32_t worker) const { return kinds_[worker]; }

  // That workers of a kind may train, from 1 on.
  const std::vector<uint32_t>& SubmodelsOf(uint32_t kind) const { return submodels_[kind]; }

 private:
  std::vector<uint32_t> kinds_;                   // by worker
  std::vector<std::vector<uint32_t>> submodels_;  // by kind
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_PERMITS_H_
