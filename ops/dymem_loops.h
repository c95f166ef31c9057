// Loops in TensorFlow's graph.

#ifndef TREPAK_OPS_DYMEM_LOOPS_H_
#define TREPAK_OPS_DYMEM_LOOPS_H_

#include <utility>
#include <vector>

#include "tensorflow/core/framework/graph.pb.h"

namespace trepak {

// What leaves a loop comes after all that enters it; edges say so only by way of the loop's own
// circle. Pairs of nodes, by number: one that enters, and one that leaves the same loop.
std::vector<std::pair<int, int>> LoopOrder(const tensorflow::GraphDef& graph);

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_LOOPS_H_
