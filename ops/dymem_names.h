// The words that users write, and what they mean.

#ifndef TREPAK_OPS_DYMEM_NAMES_H_
#define TREPAK_OPS_DYMEM_NAMES_H_

#include <map>
#include <string>

#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/dymem/swap_plan.h"

namespace trepak {

// Both throw std::out_of_range; Python has looked at the word before.

inline SwapPolicy SwapPolicyOf(const std::string& name) {
  static const auto* const policies =
      new std::map<std::string, SwapPolicy>{{"none", SwapPolicy::kNone},
                                            {"vdnn", SwapPolicy::kVdnn},
                                            {"superneurons", SwapPolicy::kSuperNeurons},
                                            {"dymem", SwapPolicy::kDymem}};
  return policies->at(name);
}

inline PoolKind PoolKindOf(const std::string& name) {
  static const auto* const kinds =
      new std::map<std::string, PoolKind>{{"best_fit", PoolKind::kBestFit},
                                          {"first_fit", PoolKind::kFirstFit},
                                          {"gtbm", PoolKind::kGtbm}};
  return kinds->at(name);
}

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_NAMES_H_
