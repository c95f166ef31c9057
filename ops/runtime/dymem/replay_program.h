// A traced step as a replay runs it: layer by layer, with the swaps of a policy.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_REPLAY_PROGRAM_H_
#define TREPAK_OPS_RUNTIME_DYMEM_REPLAY_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/runtime/dymem/allocation_trace.h"
#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/dymem/step_graph.h"
#include "ops/runtime/dymem/swap_plan.h"

namespace trepak {

// What a node works, as a line in the number of samples.
struct NodeWork {
  double operations = 0;
  double operations_per_sample = 0;
  double bytes = 0;  // read and written
  double bytes_per_sample = 0;
};

struct ReplayMachine {
  double operations_per_second = 0;
  double bytes_per_second = 0;       // of its memory
  double link_bytes_per_second = 0;  // in each direction, to where swapped tensors lie
};

struct ReplayProgram {
  struct Event {
    int block = 0;
    bool is_free = false;
  };
  struct Layer {
    double seconds = 0;  // by the roofline: the longer of arithmetic and memory
    // Those before the last allocation come when the layer begins, the others when it ends.
    std::vector<Event> events;
    size_t at_begin = 0;  // how many of them
  };
  // Positions are of the chain, as in SwapPlan.
  struct Copy {
    int block = 0;
    double seconds = 0;
    int leaves_after = 0;  // whose end begins the offload
    int last_read = 0;     // in the forward pass
    int fetch_at = 0;
    int needed_at = 0;
    size_t bytes = 0;
  };

  std::vector<Layer> layers;
  int first_backward = 0;
  bool waits_each_layer = false;
  std::vector<Copy> copies;                  // in the order of their prefetches
  std::vector<Placement::Request> requests;  // by block
  int before = 0;                            // so many blocks are there from the beginning
  std::vector<int> copy_of;                  // by block; -1: it does not leave
};

// `work`: by node of the graph. `policy`: whose swaps; they must be among those of the trace.
ReplayProgram MakeReplayProgram(const StepGraph& graph, const std::vector<NodeWork>& work,
                                const AllocationTrace& trace, SwapPolicy policy,
                                const ReplayMachine& machine);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_REPLAY_PROGRAM_H_
