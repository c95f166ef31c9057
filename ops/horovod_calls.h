// Horovod's collectives, for ops.

#ifndef TREPAK_OPS_HOROVOD_CALLS_H_
#define TREPAK_OPS_HOROVOD_CALLS_H_

#include <dlfcn.h>

#include <cstdint>
#include <memory>

#include "ops/runtime/lanes/collective_calls.h"

namespace trepak {

// Makes those of a process set; 0 is that of all ranks. Thread safety: called from any thread.
inline Status MakeHorovodCalls(int32_t process_set, std::shared_ptr<CollectiveCalls>* calls) {
  // The library beside this one that drives Horovod's core; Python has loaded it, after Horovod.
  using Make = CollectiveCalls* (*)(int32_t);
  const auto make = reinterpret_cast<Make>(dlsym(RTLD_DEFAULT, "TrepakHorovodCalls"));
  if (make == nullptr) {
    return NotFoundError("the library that drives Horovod's core is not loaded");
  }
  calls->reset(make(process_set));
  return OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_HOROVOD_CALLS_H_
