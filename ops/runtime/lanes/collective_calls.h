// Collectives that native code starts and does not wait for, of all ranks or of a group.

#ifndef TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_CALLS_H_
#define TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_CALLS_H_

#include <functional>
#include <string>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// A collective runs when all ranks have started the one of that name; two of one name must not be
// under way at once.
//
// Thread safety: every method may be called from any thread. `done` is called once, in any thread
// and without a lock, or not at all if the start has failed.
class CollectiveCalls {
 public:
  using Done = std::function<void(const Status&)>;

  // A sum over all ranks, times `factor`, of which the mean is asked for if `average`.
  struct Sum {
    std::string name;
    ElementType type = ElementType::kNone;
    Payload input;
    Payload output;  // of the same size
    double factor = 1.0;
    bool average = false;
    Done done;
  };

  virtual ~CollectiveCalls() = default;

  virtual Status StartSum(Sum sum) = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_CALLS_H_
