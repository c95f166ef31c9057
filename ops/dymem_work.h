// What the nodes of a training step work, for replays.

#ifndef TREPAK_OPS_DYMEM_WORK_H_
#define TREPAK_OPS_DYMEM_WORK_H_

#include <vector>

#include "absl/status/status.h"
#include "ops/runtime/dymem/replay_program.h"
#include "tensorflow/core/grappler/grappler_item.h"

namespace trepak {

// By node of the graph: operations and bytes as TensorFlow's own cost model counts them, with two
// numbers of samples where the graph leaves it open.
absl::Status WorkOf(const tensorflow::grappler::GrapplerItem& item, std::vector<NodeWork>* work);

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_WORK_H_
