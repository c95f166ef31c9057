// A token: training one sub-model with a certain batch (Fela, section III-A).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_TOKEN_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_TOKEN_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace trepak {

constexpr uint32_t kNoWorker = std::numeric_limits<uint32_t>::max();

struct FelaToken {
  uint32_t id = 0;
  uint32_t stage = 0;  // see FelaPlan
  uint32_t samples = 0;
  // Tokens that it depends on: of the stage before. Backward: the one that went forward, then the
  // one that has made the gradient of its output.
  std::vector<uint32_t> needs;
  // Forward: whose samples these all are, where they are to stay together (HF); else kNoWorker.
  uint32_t home = kNoWorker;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_TOKEN_H_
