// What workers share: the ranks that go at their own pace, as far as a coordinator lets them.

#ifndef TREPAK_OPS_RUNTIME_COORDINATION_COORDINATED_WORKER_H_
#define TREPAK_OPS_RUNTIME_COORDINATION_COORDINATED_WORKER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ops/runtime/net/endpoint.h"

namespace trepak {

// Thread safety: as Endpoint says; what is protected may be called from any thread.
class CoordinatedWorker : public Endpoint {
 protected:
  // `coordinator`: the rank that has it.
  CoordinatedWorker(const Options& options, uint32_t coordinator,
                    std::shared_ptr<ErrorLatch> errors)
      : Endpoint(options, std::move(errors)), coordinator_(coordinator) {}

  uint32_t coordinator() const { return coordinator_; }

  // How long this waits for others. The coordinator, the connections and the parameter servers'
  // clients know whom it waits for, so they complain first.
  std::chrono::milliseconds patience() const {
    return options().deadline + std::chrono::milliseconds(2000);
  }

  Status CheckThatCoordinatorIsHere() const {
    return HasLeft(coordinator_) ? LeftWhileOthersGoOn(coordinator_) : OkStatus();
  }

  // That this did not come in time.
  Status WaitedTooLong(const std::string& what) const {
    return DeadlineExceededError("it waited " + std::to_string(patience().count() / 1000) +
                                 " s for " + what);
  }

 private:
  const uint32_t coordinator_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_COORDINATION_COORDINATED_WORKER_H_
