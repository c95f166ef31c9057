// How two ranks agree to go over UCX.
//
//   sender → receiver, over the flow that was proved: offer   sender's address, a random token
//   receiver → sender, over UCX:                      answer  the token, receiver's address
//
// From then on the sender's messages carry the token: whoever has it was told by the sender, or has
// read the flow. So UCX is as well proved as the flow, where nobody but the two reads along.

#ifndef TREPAK_OPS_RUNTIME_NET_UCX_OFFER_H_
#define TREPAK_OPS_RUNTIME_NET_UCX_OFFER_H_

#include <cstdint>
#include <string>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"

namespace trepak {

namespace ucx {
constexpr MessageKind kOffer = KindOf("ucx", 1);
constexpr MessageKind kAnswer = KindOf("ucx", 2);
}  // namespace ucx

struct UcxOffer {
  uint64_t token = 0;
  // Where the sender has the token in its memory, in which process. The receiver reads it there if
  // it must: UCX copies large messages in the same way, and else is slow.
  uint64_t token_at = 0;
  int32_t process = 0;
  bool must_read = false;
  std::string host;     // the sender's, as the flow knows it
  std::string address;  // of the sender's UcxWorker
};

Message ToMessage(const UcxOffer& offer);
Status FromMessage(const Message& message, UcxOffer* offer);

// Whether this process can read the sender's memory.
bool CanRead(const UcxOffer& offer);

struct UcxAnswer {
  bool is_accepted = false;
  std::string address;  // of the receiver's UcxWorker
};

Message ToMessage(const UcxAnswer& answer, uint64_t token);
Status FromMessage(const Message& message, UcxAnswer* answer);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UCX_OFFER_H_
