#include "ops/runtime/chicle/cocoa_losses.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace trepak {
namespace {

// What maximizes a concave function between two bounds, within what rounding lets it be seen.
double GoldenSection(const std::function<double(double)>& of, double low, double high) {
  const double ratio = 0.5 * (std::sqrt(5.0) - 1);
  for (int i = 0; i < 200; ++i) {
    const double left = high - ratio * (high - low);
    const double right = low + ratio * (high - low);
    (of(left) < of(right) ? low : high) = of(left) < of(right) ? left : right;
  }
  return 0.5 * (low + high);
}

// l*(−β), by the definition.
double Conjugate(HingeLoss, double y, double, double beta) { return -y * beta; }
double Conjugate(SquaredHingeLoss, double y, double c, double beta) {
  return beta * beta / (4 * c) - y * beta;
}
double Conjugate(LogisticLoss, double y, double c, double beta) {
  const double share = std::clamp(y * beta / c, 0.0, 1.0);
  const auto times_log = [](double x) { return x > 0 ? x * std::log(x) : 0; };
  return c * (times_log(share) + times_log(1 - share));
}
double Conjugate(SquaredLoss, double y, double c, double beta) {
  return 0.5 * beta * beta / c - beta * y;
}

// Where a sample's dual may be.
struct Bounds {
  double low;
  double high;
};

template <typename Loss>
void CheckSteps(bool has_classes, const std::function<Bounds(double y, double c)>& bounds_of) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  for (int i = 0; i < 3000; ++i) {
    const double y = !has_classes ? 3 * normal(random) : random() % 2 == 0 ? 1 : -1;
    const double c = std::exp(3 * normal(random));
    const double z = 3 * normal(random);
    const double q = i % 20 == 0 ? 0 : std::exp(3 * normal(random));
    const Bounds bounds = bounds_of(y, c);
    const double share = i % 7 == 0 ? 0 : i % 7 == 1 ? 1 : uniform(random);
    const double now = bounds.low + share * (bounds.high - bounds.low);
    const double beta = std::isfinite(now) ? now : 0;
    // The dual along this sample alone, where it changes z by q a unit.
    const auto dual = [&](double next) {
      const double change = next - beta;
      return -Conjugate(Loss(), y, c, next) - z * change - 0.5 * q * change * change;
    };
    const double step = Loss::Step(y, z, q, c, beta);
    ASSERT_GE(step, bounds.low - 1e-12 * c);
    ASSERT_LE(step, bounds.high + 1e-12 * c);
    const double best = GoldenSection(dual, bounds.low, bounds.high);
    const double scale = 1 + c + std::abs(dual(best)) + std::abs(z * (best - beta)) +
                         0.5 * q * (best - beta) * (best - beta);
    ASSERT_GE(dual(step), dual(best) - 1e-12 * scale)
        << "y " << y << ", z " << z << ", q " << q << ", c " << c << ", from " << beta << " to "
        << step << " and not " << best;
  }
}

TEST(CocoaLossesTest, HingeStepsToTheMaximum) {
  CheckSteps<HingeLoss>(true, [](double y, double c) {
    return Bounds{std::min(0.0, y * c), std::max(0.0, y * c)};
  });
}

TEST(CocoaLossesTest, SquaredHingeStepsToTheMaximum) {
  CheckSteps<SquaredHingeLoss>(true, [](double y, double c) {
    const double most = 2 * c * 40;  // no more than 2c(1 − yz), and no draw of z is beyond 20
    return Bounds{std::min(0.0, y * most), std::max(0.0, y * most)};
  });
}

TEST(CocoaLossesTest, LogisticStepsToTheMaximum) {
  CheckSteps<LogisticLoss>(true, [](double y, double c) {
    return Bounds{std::min(0.0, y * c), std::max(0.0, y * c)};
  });
}

TEST(CocoaLossesTest, SquaredStepsToTheMaximum) {
  CheckSteps<SquaredLoss>(false, [](double y, double c) {
    const double most = c * (std::abs(y) + 40);
    return Bounds{-most, most};
  });
}

// l(y, z) + l*(−β) + βz is the gap: never negative, and zero at the derivative.
template <typename Loss>
void CheckGap(double y, const std::function<double(double z, double c)>& beta_at) {
  for (const double c : {0.1, 1.0, 7.0}) {
    for (double z = -3.05; z < 3; z += 0.1) {
      for (double other = -3.05; other < 3; other += 0.1) {
        const double beta = beta_at(other, c);
        const double gap = Loss::Gap(y, z, c, beta);
        EXPECT_GE(gap, 0);
        EXPECT_NEAR(gap, Loss::Loss(y, z, c) + Conjugate(Loss(), y, c, beta) + beta * z, 1e-12 * c);
      }
      EXPECT_NEAR(Loss::Gap(y, z, c, beta_at(z, c)), 0, 1e-15 * c);  // −l′
    }
  }
}

TEST(CocoaLossesTest, GapsAreThoseOfLossesAndConjugates) {
  for (const double y : {-1.0, 1.0}) {
    CheckGap<HingeLoss>(y, [y](double z, double c) { return y * z < 1 ? y * c : 0; });
    CheckGap<SquaredHingeLoss>(
        y, [y](double z, double c) { return 2 * c * y * std::max(0.0, 1 - y * z); });
    CheckGap<LogisticLoss>(y, [y](double z, double c) { return y * c / (1 + std::exp(y * z)); });
    CheckGap<SquaredLoss>(0.7 * y, [y](double z, double c) { return c * (0.7 * y - z); });
  }
}

// Margins at which exp overflows.
TEST(CocoaLossesTest, LogisticStaysFiniteFarOut) {
  for (const double z : {-1e4, -800.0, 800.0, 1e4}) {
    for (const double y : {-1.0, 1.0}) {
      EXPECT_NEAR(LogisticLoss::Loss(y, z, 2), 2 * std::max(0.0, -y * z), 1e-9);
      for (const double now : {0.0, 1e-300, 1.0, 2.0}) {
        const double beta = LogisticLoss::Step(y, z, 0.5, 2, y * now);
        EXPECT_TRUE(std::isfinite(beta)) << z << " " << y << " " << now;
        EXPECT_GE(y * beta, 0);
        EXPECT_LE(y * beta, 2);
      }
    }
  }
}

}  // namespace
}  // namespace trepak
