// What a group of RNA and the other groups make of each other's parameters (thesis, section 5.2).

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_EXCHANGE_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/parameters/adopted_parameters.h"

namespace trepak {

// A rank's bookkeeping of it. Every `period` rounds a group exchanges parameters: when a rank has
// applied such a round, its parameters are locked. The round's initiator adds the group's change to
// those of the whole job; what these are then is adopted by the whole group, and unlocks.
//
// Thread safety: none, the owner locks.
class RnaExchange {
 public:
  struct Rules {
    uint64_t period = 0;  // rounds from exchange to exchange; 0: none
    uint32_t ranks = 1;   // in this group
  };

  // What came of an exchange.
  struct Outcome {
    Payload values;
    uint64_t others = 0;  // samples that other groups have taken since the one before
  };

  RnaExchange(const Rules& rules, ElementType type, size_t bytes)
      : rules_(rules), adopted_(type, bytes) {}

  // The parameters are the job's, with so many samples.
  void Begin(const Payload& values, uint64_t samples);

  // A round of the group, of so many samples, is applied. Locks if it is one to exchange after.
  void Apply(uint64_t round, uint64_t samples);

  // The round that has locked the parameters.
  std::optional<uint64_t> locked() const { return locked_; }

  // What the group has changed since the last exchange.
  Payload Change(const Payload& values) const { return adopted_.Change(values); }
  uint64_t samples() const { return samples_; }  // that it has taken since

  // Samples of others since the last exchange, if all have taken so many. None before the first.
  uint64_t Others(uint64_t total) const {
    return has_begun() && total > total_ + samples_ ? total - total_ - samples_ : 0;
  }

  bool has_begun() const { return adopted_.any(); }

  // The outcome for a round has come, perhaps before this rank has applied it.
  void Arrive(uint64_t round, Outcome outcome) { arrived_.emplace(round, std::move(outcome)); }

  // Whether the lock can be lifted.
  bool has_arrived() const { return locked_ && arrived_.count(*locked_) != 0; }

  // Lifts it; the caller adopts the values.
  Outcome Adopt();

 private:
  const Rules rules_;
  AdoptedParameters adopted_;  // of the last exchange
  uint64_t total_ = 0;         // samples of all, at the last exchange
  uint64_t samples_ = 0;       // of this group, since
  std::optional<uint64_t> locked_;
  std::map<uint64_t, Outcome> arrived_;  // by round
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_EXCHANGE_H_
