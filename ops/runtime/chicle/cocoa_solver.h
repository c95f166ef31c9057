// The local solver of CoCoA (Smith et al. 2018; Chicle, section 5.1): stochastic dual coordinate
// ascent over a task's own samples.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_COCOA_SOLVER_H_
#define TREPAK_OPS_RUNTIME_CHICLE_COCOA_SOLVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/runtime/chicle/chunk_store.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// One linear model of those that are fitted to the same samples: a regression, or one class against
// the others. See cocoa_losses.h.
struct CocoaProblem {
  enum class Loss { kHinge, kSquaredHinge, kLogistic, kSquared };

  Loss loss = Loss::kHinge;
  double c = 1;                // of each sample's loss, times its weight
  double sigma = 1;            // σ′: how much this task's change may be that of all tasks
  size_t column = 0;           // of the samples' duals
  bool has_classes = true;     // else y is a number that is to be predicted
  double positive = 1;         // y is +1 where it equals this, else −1, if there are classes
  double bias = 0;             // a last feature that all samples have; 0: they have none
  std::vector<double> center;  // is subtracted from each sample; none if it is empty
  double target_center = 0;    // is subtracted from y
};

// What a task's samples add to the primal objective, without ½‖w‖², and to the duality gap.
struct CocoaObjective {
  double losses = 0;
  double gaps = 0;  // P(w) − D(β), of all tasks together, if w = Σ βx
};

// Reads the fields "x" (dense or sparse rows of float32 or float64), "y", "weight" (both float64)
// of a task's chunks, and keeps the duals in its state "alpha" (float64, a row of columns).
//
// Thread safety: one call at a time. The store's chunks stay where they are during a call, as the
// task owns them then, or the scheduler that calls does.
class CocoaSolver {
 public:
  explicit CocoaSolver(std::shared_ptr<const ChunkStore> store) : store_(std::move(store)) {}

  // One pass over the first `count` samples of an order that `seed` decides. `weights`: w, of all
  // features and the bias; the task's own change comes into `change`, whose sum over tasks is to be
  // added to w.
  Status Epoch(const CocoaProblem& problem, uint64_t seed, size_t count, size_t features,
               const double* weights, double* change);

  // What the samples add to the objectives at w, and, if `sum` is not null, Σ βx to it.
  Status Evaluate(const CocoaProblem& problem, size_t features, const double* weights,
                  CocoaObjective* objective, double* sum);

  // Of the task, as of its last call.
  size_t samples() const { return rows_.size(); }

  // The order in which an epoch takes that many samples, those of smaller chunk numbers first.
  static std::vector<uint32_t> Order(size_t samples, uint64_t seed);

 private:
  // A sample, with all that a step of it reads but its values and w. Fills a cache line.
  struct Row {
    const void* values;
    const int32_t* columns;  // null: dense
    double* duals;
    double y;
    double weight;
    double norm;    // ‖x − center‖²
    double center;  // x·center
    uint32_t count;
    uint32_t unused;
  };
  static_assert(sizeof(Row) == 64);

  Status Prepare(const CocoaProblem& problem, size_t features);
  Status AddRows(const Chunk& chunk, const CocoaProblem& problem, size_t features);
  template <typename Loss, typename Value>
  void Pass(const CocoaProblem& problem, const std::vector<uint32_t>& order, size_t features,
            double* v) const;
  template <typename Loss, typename Value>
  void Add(const CocoaProblem& problem, size_t features, const double* weights,
           CocoaObjective* objective, double* sum) const;

  static constexpr uint64_t kNone = ~uint64_t{0};

  const std::shared_ptr<const ChunkStore> store_;
  ChunkStore::Chunks chunks_;  // keeps what rows point at
  std::vector<Row> rows_;
  // What the rows were prepared with.
  size_t features_ = 0;
  std::vector<double> center_;
  double center_norm_ = 0;
  double bias_ = 0;
  bool is_double_ = false;
  uint64_t version_ = kNone;
  uint64_t columns_ = kNone;  // of duals, that all chunks have
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_COCOA_SOLVER_H_
