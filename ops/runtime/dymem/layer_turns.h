// Which layers of a step need a turn, since nothing else orders them.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_LAYER_TURNS_H_
#define TREPAK_OPS_RUNTIME_DYMEM_LAYER_TURNS_H_

#include <vector>

#include "ops/runtime/dymem/step_graph.h"
#include "ops/runtime/dymem/swap_plan.h"

namespace trepak {

// Positions of SwapPlan::chain.
struct LayerTurn {
  int position = -1;
  int after = -1;  // it comes when this one has ended
};

// The last layer before `position` that others may wait for; -1 if there is none.
int LayerBefore(const StepGraph& graph, const SwapPlan& plan, int position);

// Of all pairs of layers that run one after the other, those of which the second doesn't need the
// first, directly or by others: mostly where the order goes from one branch of a fork to the next.
// By position.
std::vector<LayerTurn> LayerTurns(const StepGraph& graph, const std::vector<int>& order,
                                  const SwapPlan& plan);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_LAYER_TURNS_H_
