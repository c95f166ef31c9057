// Workers that are free and have no token, in the order in which they asked.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_WAITING_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_WAITING_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ops/runtime/fela/fela_permits.h"
#include "ops/runtime/fela/fela_token.h"

namespace trepak {

// Thread safety: none; its owner sees to it. What it refers to must outlive it.
class FelaWaiting {
 public:
  explicit FelaWaiting(const FelaPermits& permits, uint32_t workers)
      : permits_(permits), by_kind_(permits.kinds()), places_(workers, 0) {}

  void Add(uint32_t worker) {
    places_[worker] = ++asked_;
    by_kind_[permits_.KindOf(worker)].emplace(asked_, worker);
  }

  void Remove(uint32_t worker) {
    by_kind_[permits_.KindOf(worker)].erase(places_[worker]);
    places_[worker] = 0;
  }

  bool Has(uint32_t worker) const { return places_[worker] != 0; }

  // Of a kind, who asked first; kNoWorker: nobody of it waits.
  uint32_t FirstOf(uint32_t kind) const {
    return by_kind_[kind].empty() ? kNoWorker : by_kind_[kind].begin()->second;
  }

  // Of two that may be kNoWorker, who asked first.
  uint32_t Earlier(uint32_t one, uint32_t other) const {
    if (one == kNoWorker || other == kNoWorker) {
      return one == kNoWorker ? other : one;
    }
    return places_[one] < places_[other] ? one : other;
  }

  // All, in their order.
  std::vector<uint32_t> all() const {
    std::map<uint64_t, uint32_t> merged;
    for (const auto& of_kind : by_kind_) {
      merged.insert(of_kind.begin(), of_kind.end());
    }
    std::vector<uint32_t> workers;
    for (const auto& [place, worker] : merged) {
      workers.push_back(worker);
    }
    return workers;
  }

 private:
  const FelaPermits& permits_;
  std::vector<std::map<uint64_t, uint32_t>> by_kind_;  // by kind: workers by their places
  std::vector<uint64_t> places_;                       // by worker; 0: it does not wait
  uint64_t asked_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_WAITING_H_
