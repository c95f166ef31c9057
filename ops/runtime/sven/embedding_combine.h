// From the rows that came back to one row per sample, and from its gradient to theirs.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_COMBINE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_COMBINE_H_

#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_requests.h"
#include "ops/runtime/sven/embedding_routing.h"

namespace trepak {

// As in KerasRS' EmbedReduce: a sum that is divided by the sum of the weights, by nothing, or by
// the root of the sum of the squared weights. What would be divided by zero is zero.
enum class Combiner { kMean, kSum, kSqrtn };

// How the rows of one feature become one row per sample.
struct Reduction {
  Combiner combiner = Combiner::kMean;
  // False: each sample has one id, whose row it gets; only kSum looks at weights then.
  bool reduces = true;
  Span<float> weights;  // one for each id; if there are none, all are 1
};

// Both take one reduction for each feature of the routing, and fail, naming the feature, if sizes
// don't fit. Thread safety: functions of their arguments alone.
//
// `values`: what came back from all owners. `outputs`: for each feature memory for
// [samples, columns] numbers.
Status Combine(const EmbeddingRouting& routing, const std::vector<Reduction>& reductions,
               Span<float> values, const std::vector<float*>& outputs);

// `gradients`: for each feature, of what Combine has made. `values`: memory for the gradients of
// what came back, in its order; where ids of the step share a row, the sum in the order of ids.
Status Spread(const EmbeddingRouting& routing, const std::vector<Reduction>& reductions,
              const std::vector<Span<float>>& gradients, float* values);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_COMBINE_H_
