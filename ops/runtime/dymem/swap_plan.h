// Which tensors of a step leave memory, and when each comes back (chapter 4.1.2, Algorithm 3).

#ifndef TREPAK_OPS_RUNTIME_DYMEM_SWAP_PLAN_H_
#define TREPAK_OPS_RUNTIME_DYMEM_SWAP_PLAN_H_

#include <vector>

#include "ops/runtime/dymem/step_graph.h"

namespace trepak {

enum class SwapPolicy {
  kNone,  // nothing leaves
  // Inputs of all layers; copies and layers wait for each other. That is vDNN's static mode. Its
  // dynamic one chooses some of the layers by runs that may fail, for which there is the replay.
  kVdnn,
  kSuperNeurons,  // inputs of convolutions
  kDymem,
};

// Positions are indices of SwapPlan::chain.
struct Swap {
  int tensor = -1;
  int leaves = -1;           // its first forward reader, with which the offload begins
  int fetch_at = -1;         // when this one begins, the prefetch may
  int needed_at = -1;        // the first backward reader
  std::vector<int> readers;  // nodes of the backward pass that read what came back
  bool of_convolution = false;
};

struct SwapPlan {
  // The nodes that touch feature maps, in their order. Those from first_backward on are the
  // backward pass.
  std::vector<int> chain;
  int first_backward = 0;
  std::vector<Swap> swaps;        // by needed_at: prefetches are queued in this order
  bool waits_each_layer = false;  // vDNN: a layer begins when the copies of the one before are done
};

// `order`: ExecutionOrder's.
SwapPlan PlanSwaps(const StepGraph& graph, const std::vector<int>& order, SwapPolicy policy);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_SWAP_PLAN_H_
