// What RNA's coordinator and its workers say to each other. `round` of the header is the number of
// the round that a message is about.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_MESSAGES_H_

#include "ops/runtime/coordination/coordinator.h"
#include "ops/runtime/net/message.h"

namespace trepak::rna {

constexpr MessageKind kProbe = KindOf("rna", 1);  // answer when you have gradients
constexpr MessageKind kReady = KindOf("rna", 2);  // the answer to a probe
constexpr MessageKind kGo = KindOf("rna", 3);     // the round starts; `key` is its initiator's rank
// Where there are groups; see rna_exchange.h.
constexpr MessageKind kExchanged = KindOf("rna", 4);  // has what came of the exchange after a round
constexpr MessageKind kAdopt = KindOf("rna", 5);      // take it

// Flag of coordination::kDrain: the sender has gradients that no round has taken. `round` of
// kDrained is the first one that has not been.
constexpr uint8_t kHasGradients = 1;

}  // namespace trepak::rna

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_MESSAGES_H_
