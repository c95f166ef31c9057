// What a step's samples say of the rows that occur in them (thesis, equation 6.3).

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_IMPORTANCE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_IMPORTANCE_H_

#include <cstdint>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_requests.h"
#include "ops/runtime/sven/embedding_routing.h"

namespace trepak {

// k and l: what a positive and what a negative sample weighs.
struct SampleWeights {
  float positive = 1;
  float negative = 1;
};

// Finds p k + n l for each row that is requested: p and n are the numbers of positive and negative
// samples of this rank in which it occurs, however often. `labels`: one for each sample, above 0.5:
// it is positive. Where a feature has more samples than there are labels, as many of them, side by
// side, belong to each label. Fails, naming the feature, if they can't be dealt out so.
//
// `importance`: in the order of requests; `splits`: by owner, how many. Thread safety: a function
// of its arguments alone.
Status WeighRows(const EmbeddingRouting& routing, Span<float> labels, const SampleWeights& weights,
                 std::vector<float>* importance, std::vector<int64_t>* splits);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_IMPORTANCE_H_
