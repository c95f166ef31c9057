// Groups tensors by how long they stay (chapter 4.1.3.2, Algorithm 4).

#ifndef TREPAK_OPS_RUNTIME_DYMEM_MOBILITY_H_
#define TREPAK_OPS_RUNTIME_DYMEM_MOBILITY_H_

#include <vector>

#include "ops/runtime/dymem/placement.h"
#include "ops/runtime/dymem/step_graph.h"
#include "ops/runtime/dymem/swap_plan.h"

namespace trepak {

struct TensorGroup {
  Mobility mobility = Mobility::kReclaimed;
  int references = 1;  // layers of the same pass that read it
};

// By tensor of the graph. Each pass has a view of its own: what the next layer of the pass reads,
// and no other, is movable; what waits for a join, or has several readers, is temporary. What is
// not offloaded and stays for the backward pass, or is no feature map, is reclaimed.
//
// A layer may be several nodes: a node whose result ends in small tensors (a mean) is part of the
// layer that reads those, and is no reader of its own.
std::vector<TensorGroup> GroupByMobility(const StepGraph& graph, const SwapPlan& plan);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_MOBILITY_H_
