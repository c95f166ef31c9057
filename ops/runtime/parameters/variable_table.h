// The variables of this process that are exchanged, and which priority each has: Geryon's map_table
// (sections III.B, III.C and IV).

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_VARIABLE_TABLE_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_VARIABLE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"

namespace trepak {

struct Variable {
  size_t bytes() const { return elements * SizeOf(type); }

  uint32_t key = 0;  // the same on all ranks
  std::string name;  // for messages
  ElementType type = ElementType::kNone;
  size_t elements = 0;
};

// Where in the network a variable stands.
struct VariablePlace {
  int layer = 0;  // the paper's l: position of its layer in forward order, from 1 on; 0: unknown
  bool fully_connected = false;
};

// Whoever exchanges a variable finds it here by its key.
//
// Thread safety: every method may be called from any thread. Look-ups share a lock.
class VariableTable {
 public:
  // Makes a variable known. Doing so again is an error if size or type differ; the name may.
  Status Add(const Variable& variable);

  // Nothing if there is none.
  std::optional<Variable> Find(uint32_t key) const;

  // Says where a variable that is known stands. Elsewhere than before is an error.
  Status Place(uint32_t key, const VariablePlace& place);

  // Sets what separates the priorities: a variable of urgency u = 1 - l/L, with L the number of
  // layers that are known, has priority 0, the highest, if u is above the first threshold, 1 if it
  // is above the second, and so on. They must fall.
  Status SetThresholds(const std::vector<double>& thresholds);

  // Coarse categorization: fully connected layers have priority 1, all others 0.
  void SetCoarse();

  // A variable's priority; 0 for one that has no place.
  uint8_t PriorityOf(uint32_t key);

  // The position of its layer in forward order; 0 if it has no place.
  int LayerOf(uint32_t key) const;

  // Nanoseconds that look-ups of priorities have taken in total.
  uint64_t lookup_nanoseconds() const {
    return lookup_nanoseconds_.load(std::memory_order_relaxed);
  }

  // That of this process.
  static VariableTable& Global() {
    static auto* const table = new VariableTable;
    return *table;
  }

 private:
  struct Entry {
    Variable variable;
    VariablePlace place;
  };

  // Requires mutex_, shared.
  VariablePlace PlaceOf(uint32_t key) const;

  mutable std::shared_mutex mutex_;
  // All guarded by mutex_.
  std::unordered_map<uint32_t, Entry> entries_;
  int layers_ = 0;  // the paper's L
  bool coarse_ = true;
  std::vector<double> thresholds_;

  std::atomic<uint64_t> lookup_nanoseconds_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_VARIABLE_TABLE_H_
