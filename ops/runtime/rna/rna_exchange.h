// What a group of RNA and the other groups make of each other's parameters (thesis, section 5.2).

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_EXCHANGE_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ops/runtime/parameters/adopted_parameters.h"
#include "ops/runtime/parameters/global_parameters.h"
#include "ops/runtime/rna/rna_round.h"

namespace trepak {

// A rank's bookkeeping of it. Every so many rounds, the round's initiator adds what its group has
// changed to the parameters of the whole job; what these are then is adopted by the whole group.
//
// Thread safety: every method may be called from any thread; no lock is held while the parameters
// of the whole job are called.
class RnaExchange {
 public:
  using Callback = GlobalParameters::Callback;

  // `global`: of the whole job; null if there is but one group. `me`: how errors name this rank.
  RnaExchange(const RnaRules& rules, std::string me, std::shared_ptr<GlobalParameters> global);

  // Why no exchange can succeed any more, if that is so.
  Status error() const { return global_ == nullptr ? OkStatus() : global_->error(); }

  // The parameters are the job's, fetched with the samples of all.
  void Begin(const Payload& values, uint64_t total);

  // This rank applies a round, or adopts what came of an exchange.
  void Apply(const RnaRound& round);

  // Whether these can be exchanged. That they are not finite (InvalidArgument) concerns the group.
  Status Check(const Payload& values) const;

  // Adds to the job's what the group has changed, and the samples that it has taken, since the last
  // exchange.
  void Change(const Payload& values, Callback callback);
  GlobalParameters& global() { return *global_; }

  // Keeps what came of the last change, until this rank brings it to its group: it goes to the
  // others as the sum of it and their zeros.
  void Keep(Payload values, uint64_t total) {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.samples = Others(total);
    kept_.parts = {{std::move(values), 1.0}};
  }
  Contribution Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(kept_, Contribution());
  }

  // Samples of other groups that were fetched.
  uint64_t TakeSamples() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(others_, 0);
  }

 private:
  // Both require mutex_.
  void Adopt(const Payload& values, uint64_t total);
  // Samples of others since the last exchange, if all have taken so many. None before the first.
  uint64_t Others(uint64_t total) const {
    return adopted_.any() && total > total_ + samples_ ? total - total_ - samples_ : 0;
  }

  const RnaRules rules_;
  const std::string me_;
  const std::shared_ptr<GlobalParameters> global_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  AdoptedParameters adopted_;  // of the last exchange
  uint64_t total_ = 0;         // samples of all, at the last exchange
  uint64_t samples_ = 0;       // of this group, since
  Contribution kept_;          // parameters, with samples of others
  uint64_t others_ = 0;        // samples of others that were fetched and not taken
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_EXCHANGE_H_
