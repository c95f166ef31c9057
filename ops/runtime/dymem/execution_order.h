// The order in which the layers of a step run (chapter 4.1.1, Algorithm 2).

#ifndef TREPAK_OPS_RUNTIME_DYMEM_EXECUTION_ORDER_H_
#define TREPAK_OPS_RUNTIME_DYMEM_EXECUTION_ORDER_H_

#include <vector>

#include "ops/runtime/dymem/step_graph.h"

namespace trepak {

// All nodes, depth first: after a fork, one branch is followed as far as it goes before the next
// one begins; a join comes on its in-degree-th visit. What reads a feature map without making one
// comes before what makes one: it takes no memory, and may free some. Weights and constants come
// first of all. A node comes after all that it waits for.
//
// Nodes on a circle, and those behind it, are left out.
std::vector<int> ExecutionOrder(const StepGraph& graph);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_EXECUTION_ORDER_H_
