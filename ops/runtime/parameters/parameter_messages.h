// What clients of parameter servers and the servers say to each other.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_MESSAGES_H_

#include "ops/runtime/net/message.h"

namespace trepak::parameters {

constexpr MessageKind kPush = KindOf("parameters", 1);    // adds the payload to a slice's sum
constexpr MessageKind kPull = KindOf("parameters", 2);    // asks for a slice
constexpr MessageKind kDelta = KindOf("parameters", 3);   // adds the payload to a slice's value
constexpr MessageKind kAssign = KindOf("parameters", 4);  // sets a slice's value
constexpr MessageKind kAnswer = KindOf("parameters", 5);  // from a server: the slice

// Flag: the sender wants the answer as soon as there is one, a push and a pull in one message.
constexpr uint8_t kWantsAnswer = 1;

}  // namespace trepak::parameters

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_MESSAGES_H_
