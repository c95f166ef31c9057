// Runs a traced step on a clock of its own: the same swaps, the same placement, no memory and no
// time (thesis, section 4.3).

#ifndef TREPAK_OPS_RUNTIME_DYMEM_REPLAY_H_
#define TREPAK_OPS_RUNTIME_DYMEM_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/dymem/replay_program.h"

namespace trepak {

struct ReplayOptions {
  PoolKind kind = PoolKind::kGtbm;
  size_t limit = 0;      // bytes, beta included
  size_t beta = 0;       // kept back until the rest is not enough
  bool overlaps = true;  // else copies and computation take turns
  double jitter = 0;     // a layer takes its time times 1 ± up to this part
  uint64_t seed = 0;
};

// Times in seconds of the replay's clock.
struct ReplayPass {
  double taken = 0;
  double computed = 0;
  double copied = 0;
  // No schedule is faster that copies in this order, beside the computation, with as much memory as
  // it likes: the longer of both sums, with what the first or last of them must wait for. Of layers
  // without jitter.
  double bound = 0;
};

struct ReplayPoint {
  size_t live = 0;
  size_t occupied = 0;
};

struct ReplayFigures {
  int failed_block = -1;  // which found no room, and ended the replay
  size_t peak_live = 0;
  size_t peak_occupied = 0;
  size_t extent = 0;  // a pool of this limit serves the step too, but for best-fit
  int64_t shortages = 0;
  int64_t waits = 0;
  int64_t evictions = 0;  // of what was prefetched and not read yet
  size_t swapped_bytes = 0;
  double fragmentation = 0;  // equation 4.1 for each request before it is placed, on average
  ReplayPass forward;
  ReplayPass backward;
  std::vector<ReplayPoint> curve;  // the highest of each layer
};

ReplayFigures Replay(const ReplayProgram& program, const ReplayOptions& options);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_REPLAY_H_
