// Token Bucket and Token Distributor: tokens that nobody has yet, and who gets which (Fela,
// sections III-D to III-F).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_BUCKET_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "ops/runtime/fela/fela_generator.h"
#include "ops/runtime/fela/fela_info_mapping.h"
#include "ops/runtime/fela/fela_permits.h"
#include "ops/runtime/fela/fela_plan.h"
#include "ops/runtime/fela/fela_stragglers.h"

namespace trepak {

// Of one iteration. With HF each worker has a sub-bucket, and takes from others only when its own
// has nothing for it; without, all share the first one.
//
// Thread safety: none; its owner sees to it. What it refers to must outlive it.
class FelaBucket {
 public:
  FelaBucket(const FelaPlan& plan, const FelaPermits& permits, const FelaGenerator& generator,
             const FelaInfoMapping& info);

  // `reporter`: whose report has made it, or whose sample it is of. Returns the worker whose
  // sub-bucket it is in; without HF 0.
  uint32_t Add(uint32_t token, uint32_t reporter);

  // Chooses a token for a worker that is free, by the policies, and takes it out.
  std::optional<uint32_t> Take(uint32_t worker);

  size_t size() const { return size_; }

  // With HF: whether a worker has a token of its own, and whether workers of a kind may take one of
  // another's.
  bool HasOwn(uint32_t worker) const { return sub_buckets_[worker].size > 0; }
  bool HasOthers(uint32_t kind) const {
    return stragglers_.First(permits_.SubmodelsOf(kind)) != kNoWorker;
  }

  // Tokens that workers took from others' sub-buckets.
  uint64_t helped() const { return helped_; }

 private:
  // What goes first: stages of which CTD says so, then the highest.
  using Priority = std::tuple<bool, uint32_t>;
  struct SubBucket {
    std::map<Priority, std::set<uint32_t>, std::greater<>> tokens;
    size_t size = 0;
    uint32_t helpers = 0;  // that are at work on tokens from here
  };

  uint32_t Place(const FelaToken& token, uint32_t reporter) const;
  std::optional<uint32_t> Choose(const SubBucket& from, uint32_t worker) const;
  std::optional<uint32_t> ChooseOf(const std::set<uint32_t>& tokens, uint32_t worker) const;
  bool MayTake(uint32_t worker, const FelaToken& token) const;
  void Remove(uint32_t place, uint32_t token);
  void Rank(uint32_t place);
  Priority PriorityOf(uint32_t stage) const {
    return {plan_.IsConditional(plan_.SubmodelOf(stage)), stage};
  }

  const FelaPlan& plan_;
  const FelaPermits& permits_;
  const FelaGenerator& generator_;
  const FelaInfoMapping& info_;
  std::vector<SubBucket> sub_buckets_;  // by worker
  FelaStragglers stragglers_;           // with HF
  std::vector<uint32_t> helps_;         // by worker: whom; kNoWorker: nobody
  std::vector<uint32_t> backward_;      // by worker: backward tokens here whose activations it has
  size_t size_ = 0;
  uint64_t helped_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_BUCKET_H_
