// Info Mapping: which worker has completed which token (Fela, section III-A).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_INFO_MAPPING_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_INFO_MAPPING_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/runtime/fela/fela_token.h"

namespace trepak {

// Of one iteration.
//
// Thread safety: none; its owner sees to it.
class FelaInfoMapping {
 public:
  FelaInfoMapping(uint32_t numbers, uint32_t workers)
      : holders_(numbers, kNoWorker), completed_(workers) {}

  void Complete(uint32_t worker, uint32_t token) {
    holders_[token] = worker;
    ++completed_[worker];
  }

  // The worker that has completed a token; kNoWorker: none yet.
  uint32_t holder(uint32_t token) const { return holders_[token]; }

  // Tokens that a worker has completed: its progress.
  uint32_t completed(uint32_t worker) const { return completed_[worker]; }

  // How many of the tokens that one depends on a worker has completed: equation 1's |H ∩ D|.
  uint32_t Held(uint32_t worker, const FelaToken& token) const {
    return static_cast<uint32_t>(
        std::count_if(token.needs.begin(), token.needs.end(),
                      [&](uint32_t need) { return holders_[need] == worker; }));
  }

  // Who has completed the most of what a token depends on; of several the smallest.
  uint32_t HolderOfMost(const FelaToken& token) const {
    uint32_t most = kNoWorker;
    for (const uint32_t need : token.needs) {
      const uint32_t one = holders_[need];
      const uint32_t held = Held(one, token);
      const uint32_t most_held = most == kNoWorker ? 0 : Held(most, token);
      if (held > most_held || (held == most_held && one < most)) {
        most = one;
      }
    }
    return most;
  }

 private:
  std::vector<uint32_t> holders_;    // by token
  std::vector<uint32_t> completed_;  // by worker
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_INFO_MAPPING_H_
