// Compiled with -fno-math-errno (CMakeLists.txt), without which the compiler makes no vector
// instructions of square roots.
#include "ops/runtime/sven/embedding_optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace trepak {
namespace {

Status CheckOption(const char* name, double value, double least, double beyond) {
  if (value >= least && value < beyond) {
    return OkStatus();
  }
  return InvalidArgumentError(std::string(name) + " must be at least " + std::to_string(least) +
                              " and below " + std::to_string(beyond) + ", but is " +
                              std::to_string(value));
}

void ApplySgd(size_t columns, float rate, const float* __restrict__ gradient,
              float* __restrict__ weights) {
  for (size_t i = 0; i < columns; ++i) {
    weights[i] -= gradient[i] * rate;
  }
}

void ApplyAdagrad(size_t columns, float rate, float epsilon, const float* __restrict__ gradient,
                  float* __restrict__ weights, float* __restrict__ accumulators) {
  for (size_t i = 0; i < columns; ++i) {
    const float accumulator = accumulators[i] + gradient[i] * gradient[i];
    accumulators[i] = accumulator;
    weights[i] -= rate * gradient[i] / std::sqrt(accumulator + epsilon);
  }
}

struct AdamFactors {
  float rate;
  float momentum;  // 1 - beta_1
  float velocity;  // 1 - beta_2
  float epsilon;
};

void ApplyAdam(size_t columns, const AdamFactors& factors, const float* __restrict__ gradient,
               float* __restrict__ weights, float* __restrict__ momentums,
               float* __restrict__ velocities) {
  const AdamFactors by = factors;  // which the compiler can't know to stay
  for (size_t i = 0; i < columns; ++i) {
    const float momentum = momentums[i] + (gradient[i] - momentums[i]) * by.momentum;
    const float velocity =
        velocities[i] + (gradient[i] * gradient[i] - velocities[i]) * by.velocity;
    momentums[i] = momentum;
    velocities[i] = velocity;
    weights[i] -= momentum * by.rate / (std::sqrt(velocity) + by.epsilon);
  }
}

struct SquareRoot {
  float operator()(float value) const { return std::sqrt(value); }
};

struct Power {
  float operator()(float value) const { return std::pow(value, exponent); }
  float exponent;
};

// `power`: to the negative of the learning rate's power.
template <typename PowerOf>
void ApplyFtrl(size_t columns, float rate, const RowOptimizer& optimizer, const PowerOf power,
               const float* __restrict__ gradient, float* __restrict__ weights,
               float* __restrict__ accumulators, float* __restrict__ linears) {
  const float l1 = optimizer.l1_regularization_strength;
  const float l2 = optimizer.l2_regularization_strength + optimizer.beta / (2 * rate);
  const float shrinkage = 2 * optimizer.l2_shrinkage_regularization_strength;
  for (size_t i = 0; i < columns; ++i) {
    const float with_shrinkage = gradient[i] + shrinkage * weights[i];
    const float accumulator = accumulators[i] + gradient[i] * gradient[i];
    const float raised = power(accumulator);
    const float linear =
        linears[i] + (with_shrinkage - (raised - power(accumulators[i])) / rate * weights[i]);
    const float quadratic = raised / rate + 2 * l2;
    weights[i] = (std::min(std::max(linear, -l1), l1) - linear) / quadratic;
    linears[i] = linear;
    accumulators[i] = accumulator;
  }
}

}  // namespace

Status CheckRowOptimizer(const RowOptimizer& optimizer) {
  const double endless = HUGE_VAL;
  switch (optimizer.rule) {
    case RowRule::kSgd:
      return OkStatus();
    case RowRule::kAdagrad:
      TREPAK_RETURN_IF_ERROR(CheckOption("initial_accumulator_value",
                                         optimizer.initial_accumulator_value, 0, endless));
      return CheckOption("epsilon", optimizer.epsilon, 0, endless);
    case RowRule::kAdam:
      TREPAK_RETURN_IF_ERROR(CheckOption("beta_1", optimizer.beta_1, 0, 1));
      TREPAK_RETURN_IF_ERROR(CheckOption("beta_2", optimizer.beta_2, 0, 1));
      return CheckOption("epsilon", optimizer.epsilon, 0, endless);
    case RowRule::kFtrl:
      break;
  }
  TREPAK_RETURN_IF_ERROR(
      CheckOption("initial_accumulator_value", optimizer.initial_accumulator_value, 0, endless));
  TREPAK_RETURN_IF_ERROR(
      CheckOption("-learning_rate_power", -optimizer.learning_rate_power, 0, endless));
  TREPAK_RETURN_IF_ERROR(
      CheckOption("l1_regularization_strength", optimizer.l1_regularization_strength, 0, endless));
  TREPAK_RETURN_IF_ERROR(
      CheckOption("l2_regularization_strength", optimizer.l2_regularization_strength, 0, endless));
  TREPAK_RETURN_IF_ERROR(CheckOption("l2_shrinkage_regularization_strength",
                                     optimizer.l2_shrinkage_regularization_strength, 0, endless));
  return CheckOption("beta", optimizer.beta, 0, endless);
}

size_t SlotsOf(const RowOptimizer& optimizer) {
  switch (optimizer.rule) {
    case RowRule::kSgd:
      return 0;
    case RowRule::kAdagrad:
      return 1;
    case RowRule::kAdam:
    case RowRule::kFtrl:
      break;
  }
  return 2;
}

bool StartsAtZero(const RowOptimizer& optimizer) {
  return (optimizer.rule != RowRule::kAdagrad && optimizer.rule != RowRule::kFtrl) ||
         optimizer.initial_accumulator_value == 0;
}

void InitialiseSlots(const RowOptimizer& optimizer, size_t columns, float* slots) {
  std::fill_n(slots, columns * SlotsOf(optimizer), 0.0F);
  if (!StartsAtZero(optimizer)) {
    std::fill_n(slots, columns, optimizer.initial_accumulator_value);
  }
}

Status RowUpdate::Make(const RowOptimizer& optimizer, float learning_rate, int64_t step,
                       RowUpdate* update) {
  if (!std::isfinite(learning_rate)) {
    return InvalidArgumentError("the learning rate is not finite");
  }
  if (optimizer.rule == RowRule::kFtrl && !(learning_rate > 0)) {
    return InvalidArgumentError("FTRL divides by its learning rate, which must be above 0");
  }
  if (step < 1) {
    return InvalidArgumentError("updates are counted from 1 on, but this is number " +
                                std::to_string(step));
  }
  update->optimizer_ = optimizer;
  update->learning_rate_ = learning_rate;
  if (optimizer.rule == RowRule::kAdam) {
    // In single precision, as Keras does: in double it would be another number.
    const auto number = static_cast<float>(step);
    const float beta_1_power = std::pow(static_cast<float>(optimizer.beta_1), number);
    const float beta_2_power = std::pow(static_cast<float>(optimizer.beta_2), number);
    update->learning_rate_ = learning_rate * std::sqrt(1 - beta_2_power) / (1 - beta_1_power);
  }
  return OkStatus();
}

void RowUpdate::Apply(size_t columns, const float* gradient, float* row) const {
  float* const slots = row + columns;
  switch (optimizer_.rule) {
    case RowRule::kSgd:
      return ApplySgd(columns, learning_rate_, gradient, row);
    case RowRule::kAdagrad:
      return ApplyAdagrad(columns, learning_rate_, optimizer_.epsilon, gradient, row, slots);
    case RowRule::kAdam: {
      const AdamFactors factors = {learning_rate_, static_cast<float>(1 - optimizer_.beta_1),
                                   static_cast<float>(1 - optimizer_.beta_2), optimizer_.epsilon};
      return ApplyAdam(columns, factors, gradient, row, slots, slots + columns);
    }
    case RowRule::kFtrl:
      break;
  }
  if (optimizer_.learning_rate_power == -0.5F) {
    return ApplyFtrl(columns, learning_rate_, optimizer_, SquareRoot{}, gradient, row, slots,
                     slots + columns);
  }
  ApplyFtrl(columns, learning_rate_, optimizer_, Power{-optimizer_.learning_rate_power}, gradient,
            row, slots, slots + columns);
}

}  // namespace trepak
