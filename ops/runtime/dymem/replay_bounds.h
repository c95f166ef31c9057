// How fast a step could be at best.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_REPLAY_BOUNDS_H_
#define TREPAK_OPS_RUNTIME_DYMEM_REPLAY_BOUNDS_H_

#include "ops/runtime/dymem/replay.h"

namespace trepak {

// Sets both passes' bounds, from the times of layers and copies alone.
void AddBounds(const ReplayProgram& program, ReplayFigures* figures);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_REPLAY_BOUNDS_H_
