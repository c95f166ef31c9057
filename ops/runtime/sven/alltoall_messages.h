// What peers of an alltoall say to each other.

#ifndef TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_MESSAGES_H_

#include <cstdint>

#include "ops/runtime/net/message.h"

namespace trepak::alltoall {

// A split. Its header: `key` says of which exchanges, `round` of which of their iterations, `slice`
// how many elements a row has.
constexpr MessageKind kSplit = KindOf("alltoall", 1);
// What the sender has taken of the receiver's splits: any number of `Iterations`.
constexpr MessageKind kTaken = KindOf("alltoall", 2);
// Splits wait at the sender until the receiver has taken more of those it has.
constexpr MessageKind kWaiting = KindOf("alltoall", 3);
// Which of the splits that wait at the receiver the sender waits for itself: `Iterations`.
constexpr MessageKind kWanted = KindOf("alltoall", 4);

struct Iterations {
  uint64_t key = 0;
  uint64_t number = 0;  // of them, from the first one on
};

// What a split takes of the receiver's room; an empty one takes some, too.
inline size_t BytesOf(const Payload& split) { return split.size() + kHeaderBytes; }

}  // namespace trepak::alltoall

#endif  // TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_MESSAGES_H_
