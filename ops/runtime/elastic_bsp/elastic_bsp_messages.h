// What the coordinator of ElasticBSP, SSP and ASP and its workers say to each other.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_MESSAGES_H_

#include <cstdint>

#include "ops/runtime/coordination/coordinator.h"
#include "ops/runtime/net/message.h"

namespace trepak::elastic_bsp {

constexpr MessageKind kStepped = KindOf("elastic_bsp", 1);  // has ended a step
constexpr MessageKind kGrant = KindOf("elastic_bsp", 2);
constexpr MessageKind kFetched = KindOf("elastic_bsp", 3);  // has the parameters of the barrier
constexpr MessageKind kOpen = KindOf("elastic_bsp", 4);     // all have

// Of kStepped, in seconds.
struct Stepped {
  double communicated = 0;
  double held_up = 0;  // at a gate
};

// Of kGrant: how many steps the receiver may take in all.
struct Grant {
  uint64_t steps = 0;
  uint64_t superstep = 0;
  uint32_t ranks = 0;       // that get a grant with this one
  uint32_t at_barrier = 0;  // 1: the receiver has come to one, and is to fetch parameters first
};

}  // namespace trepak::elastic_bsp

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_MESSAGES_H_
