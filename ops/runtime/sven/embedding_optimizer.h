// What an update does to one row: the formulas of Keras 3, for rows that a step has touched.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_OPTIMIZER_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>

#include "ops/runtime/net/status.h"

namespace trepak {

enum class RowRule { kSgd, kAdagrad, kAdam, kFtrl };

// Options that stay, with Keras' defaults. Those of other rules are not looked at.
struct RowOptimizer {
  RowRule rule = RowRule::kSgd;
  float initial_accumulator_value = 0.1F;  // Adagrad, FTRL
  float epsilon = 1e-7F;                   // Adagrad, Adam
  double beta_1 = 0.9;                     // Adam
  double beta_2 = 0.999;
  float learning_rate_power = -0.5F;  // FTRL
  float l1_regularization_strength = 0;
  float l2_regularization_strength = 0;
  float l2_shrinkage_regularization_strength = 0;
  float beta = 0;
};

// Fails, naming the option, if one is out of the range that Keras allows.
Status CheckRowOptimizer(const RowOptimizer& optimizer);

// How many numbers it keeps for each weight. Behind a row's weights stand as many of each, in this
// order: Adagrad's accumulators; Adam's momentums and velocities; FTRL's accumulators and linears.
size_t SlotsOf(const RowOptimizer& optimizer);

// Whether all of these are zero before any update.
bool StartsAtZero(const RowOptimizer& optimizer);

// Sets the slots of a row to what they are before any update.
void InitialiseSlots(const RowOptimizer& optimizer, size_t columns, float* slots);

// One step of one table's optimizer. Immutable. Thread safety: Apply may be called from many
// threads at once, each for rows of its own.
class RowUpdate {
 public:
  // Fails if the rate can't be used. `step`: the number of this update, from 1 on.
  static Status Make(const RowOptimizer& optimizer, float learning_rate, int64_t step,
                     RowUpdate* update);

  // Updates the weights and slots of a row. `gradient` must not overlap it.
  void Apply(size_t columns, const float* gradient, float* row) const;

 private:
  RowOptimizer optimizer_;
  float learning_rate_ = 0;  // Adam: with the corrections of its momentums
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_OPTIMIZER_H_
