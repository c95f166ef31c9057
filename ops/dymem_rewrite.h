// Puts the order and the swaps of a plan into TensorFlow's graph.

#ifndef TREPAK_OPS_DYMEM_REWRITE_H_
#define TREPAK_OPS_DYMEM_REWRITE_H_

#include <cstdint>
#include <vector>

#include "ops/dymem_graph.h"
#include "ops/runtime/dymem/layer_turns.h"
#include "ops/runtime/dymem/swap_plan.h"
#include "tensorflow/core/framework/graph.pb.h"

namespace trepak {

// Adds nodes and edges, and has readers of swapped tensors read what comes back; takes none away.
// `graph`: what was read. `behind_all`: a node of it that has to run, and that may wait for all
// layers. Returns how many layers wait until copies are done.
int64_t RewriteStep(const DymemGraph& read, const SwapPlan& plan,
                    const std::vector<LayerTurn>& turns, int behind_all,
                    tensorflow::GraphDef* graph);

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_REWRITE_H_
