#include "ops/runtime/sven/embedding_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace trepak {
namespace {

using testing::HasSubstr;

constexpr size_t kColumns = 7;  // not a whole number of vectors
constexpr float kRate = 0.05F;

float GradientAt(int64_t step, size_t column) {
  return std::sin(static_cast<float>(step) * 1.7F + static_cast<float>(column)) * 0.8F;
}

// Does 20 steps; `formula` does what is to come out of one, for one weight, in double precision.
template <typename Formula>
void Compare(const RowOptimizer& optimizer, std::vector<double> slots, const Formula& formula) {
  std::vector<float> row(kColumns * (1 + SlotsOf(optimizer)));
  std::vector<double> weights(kColumns);
  std::vector<std::vector<double>> kept(kColumns, slots);
  for (size_t i = 0; i < kColumns; ++i) {
    row[i] = 0.3F - 0.1F * static_cast<float>(i);
    weights[i] = row[i];
  }
  InitialiseSlots(optimizer, kColumns, row.data() + kColumns);
  for (int64_t step = 1; step <= 20; ++step) {
    RowUpdate update;
    ASSERT_EQ(RowUpdate::Make(optimizer, kRate, step, &update), OkStatus());
    std::vector<float> gradient(kColumns);
    for (size_t i = 0; i < kColumns; ++i) {
      gradient[i] = GradientAt(step, i);
      formula(static_cast<double>(step), gradient[i], &weights[i], kept[i].data());
    }
    update.Apply(kColumns, gradient.data(), row.data());
    for (size_t i = 0; i < kColumns; ++i) {
      EXPECT_NEAR(row[i], weights[i], 1e-5 * std::abs(weights[i]) + 1e-6) << step << " " << i;
      for (size_t slot = 0; slot < slots.size(); ++slot) {
        const double expected = kept[i][slot];
        EXPECT_NEAR(row[(slot + 1) * kColumns + i], expected, 1e-5 * std::abs(expected) + 1e-6);
      }
    }
  }
}

TEST(EmbeddingOptimizerTest, Sgd) {
  Compare({}, {}, [](double, double g, double* w, double*) { *w -= kRate * g; });
}

TEST(EmbeddingOptimizerTest, Adagrad) {
  RowOptimizer optimizer;
  optimizer.rule = RowRule::kAdagrad;
  optimizer.initial_accumulator_value = 0.2F;
  optimizer.epsilon = 1e-3F;
  Compare(optimizer, {0.2}, [](double, double g, double* w, double* a) {
    *a += g * g;
    *w -= kRate * g / std::sqrt(*a + 1e-3);
  });
}

TEST(EmbeddingOptimizerTest, Adam) {
  RowOptimizer optimizer;
  optimizer.rule = RowRule::kAdam;
  optimizer.beta_1 = 0.8;
  optimizer.beta_2 = 0.95;
  optimizer.epsilon = 1e-4F;
  Compare(optimizer, {0, 0}, [](double step, double g, double* w, double* slots) {
    slots[0] = 0.8 * slots[0] + 0.2 * g;
    slots[1] = 0.95 * slots[1] + 0.05 * g * g;
    const double corrected = std::sqrt(1 - std::pow(0.95, step)) / (1 - std::pow(0.8, step));
    *w -= kRate * corrected * slots[0] / (std::sqrt(slots[1]) + 1e-4);
  });
}

void CompareFtrl(double power) {
  RowOptimizer optimizer;
  optimizer.rule = RowRule::kFtrl;
  optimizer.learning_rate_power = static_cast<float>(power);
  optimizer.l1_regularization_strength = 0.01F;
  optimizer.l2_regularization_strength = 0.02F;
  optimizer.l2_shrinkage_regularization_strength = 0.03F;
  optimizer.beta = 0.04F;
  Compare(optimizer, {0.1, 0}, [power](double, double g, double* w, double* slots) {
    const double before = slots[0];
    slots[0] += g * g;
    const double raised = std::pow(slots[0], -power);
    slots[1] += g + 2 * 0.03 * *w - (raised - std::pow(before, -power)) / kRate * *w;
    const double l2 = 0.02 + 0.04 / (2 * kRate);
    const double clipped = std::min(std::max(slots[1], -0.01), 0.01);
    *w = (clipped - slots[1]) / (raised / kRate + 2 * l2);
  });
}

TEST(EmbeddingOptimizerTest, FtrlWithTheRoot) { CompareFtrl(-0.5); }
TEST(EmbeddingOptimizerTest, FtrlWithAnotherPower) { CompareFtrl(-0.7); }

TEST(EmbeddingOptimizerTest, WrongOptionsAreNamed) {
  RowOptimizer optimizer;
  optimizer.rule = RowRule::kFtrl;
  optimizer.learning_rate_power = 0.5F;
  EXPECT_THAT(std::string(CheckRowOptimizer(optimizer).message()),
              HasSubstr("learning_rate_power"));
  optimizer.rule = RowRule::kAdam;
  optimizer.beta_2 = 1;
  EXPECT_THAT(std::string(CheckRowOptimizer(optimizer).message()), HasSubstr("beta_2"));
  optimizer.rule = RowRule::kAdagrad;
  optimizer.epsilon = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(std::string(CheckRowOptimizer(optimizer).message()), HasSubstr("epsilon"));
}

TEST(EmbeddingOptimizerTest, WrongStepsAreNamed) {
  RowUpdate update;
  EXPECT_THAT(std::string(RowUpdate::Make({}, HUGE_VALF, 1, &update).message()),
              HasSubstr("not finite"));
  EXPECT_THAT(std::string(RowUpdate::Make({}, 0.1F, 0, &update).message()), HasSubstr("number 0"));
  RowOptimizer ftrl;
  ftrl.rule = RowRule::kFtrl;
  EXPECT_THAT(std::string(RowUpdate::Make(ftrl, 0, 1, &update).message()), HasSubstr("above 0"));
}

}  // namespace
}  // namespace trepak
