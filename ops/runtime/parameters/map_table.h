// Which priority a parameter has: Geryon's map_table (sections III.B, III.C and IV).

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_MAP_TABLE_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_MAP_TABLE_H_

#include <atomic>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/runtime/net/status.h"

namespace trepak {

// Where in the network a parameter stands.
struct ParameterPlace {
  int layer = 1;  // the paper's l: position of its layer in forward order, from 1 on
  bool fully_connected = false;
};

// Thread safety: every method may be called from any thread. Look-ups share a lock; entries are
// written on first use and when the thresholds change.
class MapTable {
 public:
  // Says where a parameter stands. Recording it again, elsewhere, is an error.
  Status Record(const std::string& name, const ParameterPlace& place);

  // Sets what separates the priorities: a parameter of urgency u = 1 - l/L has priority 0, the
  // highest, if u is above the first threshold, 1 if it is above the second, and so on. They must
  // fall. All entries are forgotten.
  Status SetThresholds(const std::vector<double>& thresholds);

  // Coarse categorization: fully connected layers have priority 1, all others 0.
  void SetCoarse();

  // A parameter's priority; 0 for one that was not recorded. Names must be recorded before.
  uint8_t PriorityOf(const std::string& name);

  // The position of its layer in forward order; 0 if it was not recorded.
  int LayerOf(const std::string& name) const;

  // Its urgency level, 1 - l/L, with L the number of layers recorded.
  double UrgencyOf(const std::string& name) const;

  // Nanoseconds that look-ups have taken in total.
  uint64_t lookup_nanoseconds() const {
    return lookup_nanoseconds_.load(std::memory_order_relaxed);
  }

 private:
  // Require mutex_, shared.
  double Urgency(const ParameterPlace& place) const;
  uint8_t Assign(const std::string& name) const;

  mutable std::shared_mutex mutex_;
  // All guarded by mutex_.
  std::unordered_map<std::string, uint8_t> entries_;
  std::unordered_map<std::string, ParameterPlace> places_;
  int layers_ = 0;  // the paper's L
  bool coarse_ = true;
  std::vector<double> thresholds_;

  std::atomic<uint64_t> lookup_nanoseconds_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_MAP_TABLE_H_
