// The lanes of this process: optimizers' gradients that travel through collectives.

#ifndef TREPAK_OPS_LANE_TABLE_H_
#define TREPAK_OPS_LANE_TABLE_H_

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/runtime/lanes/collective_lane.h"
#include "ops/runtime/parameters/parameter_service.h"

namespace trepak {

// Thread safety: every method may be called from any thread.
class LaneTable {
 public:
  // The lane of these keys; it takes the place of one that has had them before.
  void Add(const std::vector<Variable>& variables, const std::shared_ptr<CollectiveLane>& lane) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Variable& variable : variables) {
      lanes_[variable.key] = lane;
    }
  }

  // Null if there is none.
  std::shared_ptr<CollectiveLane> Find(uint32_t key) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = lanes_.find(key);
    return found == lanes_.end() ? nullptr : found->second;
  }

  // Ends all; what waits fails.
  void Clear(const Status& status) {
    std::unordered_map<uint32_t, std::shared_ptr<CollectiveLane>> lanes;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      lanes = std::exchange(lanes_, {});
    }
    for (const auto& [key, lane] : lanes) {
      lane->Fail(status);
    }
  }

  // That of this process.
  static LaneTable& Global() {
    static auto* const table = new LaneTable;  // collectives may end after all else
    return *table;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, std::shared_ptr<CollectiveLane>> lanes_;  // Guarded by mutex_.
};

// What carries a variable's gradients: its lane, or the parameter servers. Null, with `status`, if
// there is neither.
inline std::shared_ptr<GradientExchange> FindExchange(uint32_t key, Status* status) {
  if (std::shared_ptr<CollectiveLane> lane = LaneTable::Global().Find(key)) {
    *status = OkStatus();
    return lane;
  }
  return ParameterService::Global().client(status);
}

}  // namespace trepak

#endif  // TREPAK_OPS_LANE_TABLE_H_
