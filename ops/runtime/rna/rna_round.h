// What the parts of a rank's side of RNA tell each other: the rules, and rounds.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_ROUND_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/observe/timeline.h"
#include "ops/runtime/rna/rna_contributions.h"

namespace trepak {

// What a rank's side of RNA goes by.
struct RnaRules {
  struct Exchange {
    uint64_t period = 0;  // rounds from exchange to exchange; 0: none
    uint32_t ranks = 1;   // in this group
  };

  ElementType type = ElementType::kFloat32;
  size_t elements = 0;     // of all gradients together
  uint64_t staleness = 3;  // see RnaContributions
  RnaContributions::Combine combine = RnaContributions::Combine::kByVersion;
  bool aligned = false;  // a step belongs to the round of its number, see RnaInbox::Await
  Exchange exchange;
  uint32_t members = 1;                      // of its group
  bool leads = false;                        // it, when that exchanges parameters for the last time
  std::string sum;                           // the name of what sums rounds up
  Timeline* timeline = &Timeline::Global();  // shows the rounds; outlives the worker
  int row = 0;                               // of the timeline's rounds
  uint32_t run = 0;  // the same rank's workers number their rounds anew, and this tells which

  size_t bytes() const { return elements * SizeOf(type); }
  bool ExchangesAfter(uint64_t round) const {
    return exchange.period != 0 && (round + 1) % exchange.period == 0;
  }
};

// The result of a round, or of an exchange after one.
struct RnaRound {
  uint64_t number = 0;  // after an exchange, of the round that it is after
  Payload sum;          // of the contributions; after an exchange, the parameters to adopt
  bool is_exchange = false;
  double contributors = 0;  // ranks that brought a gradient
  uint64_t samples = 0;     // of all ranks, see Contribution; after an exchange, of other groups
  double rate = 0;          // mean of the contributors' learning rates
  uint32_t initiator = 0;   // rank
  bool exchanges = false;   // when it is applied, this rank is to exchange parameters
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_ROUND_H_
