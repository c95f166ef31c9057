// Losses of linear models, with the steps of coordinate ascent in the dual of
//
//   P(w) = ½‖w‖² + Σ_i C_i l(y_i, x_i·w),   w = Σ_i β_i x_i,
//   D(β) = −½‖w‖² − Σ_i l*_i(−β_i),
//
// in which β_i is the dual variable of sample i with its label's sign (α_i = y_i β_i in classes).

#ifndef TREPAK_OPS_RUNTIME_CHICLE_COCOA_LOSSES_H_
#define TREPAK_OPS_RUNTIME_CHICLE_COCOA_LOSSES_H_

#include <algorithm>
#include <cmath>

namespace trepak {

// Each has
//   Step(y, z, q, c, β): the β that maximizes the dual along sample i alone, where z = x_i·v is
//     what the model says now, and q = σ′‖x_i‖² by how much z grows with β;
//   Loss(y, z, c), and
//   Gap(y, z, c, β) = l_i(z) + l*_i(−β) + βz, which is never negative: their sum over all samples
//   is
//     P(w) − D(β), without the rounding errors of that difference.

// max(0, 1 − yz): of the linear support vector machine.
struct HingeLoss {
  static double Step(double y, double z, double q, double c, double beta) {
    const double slope = y * z - 1;
    if (q == 0) {
      return slope < 0 ? y * c : 0;
    }
    return y * std::clamp(y * beta - slope / q, 0.0, c);
  }
  static double Loss(double y, double z, double c) { return c * std::max(0.0, 1 - y * z); }
  static double Gap(double y, double z, double c, double beta) {
    const double under = 1 - y * z;
    const double alpha = y * beta;
    return under > 0 ? (c - alpha) * under : -alpha * under;
  }
};

// max(0, 1 − yz)².
struct SquaredHingeLoss {
  static double Step(double y, double z, double q, double c, double beta) {
    const double diagonal = 0.5 / c;
    const double alpha = y * beta;
    const double slope = y * z - 1 + alpha * diagonal;
    return y * std::max(0.0, alpha - slope / (q + diagonal));
  }
  static double Loss(double y, double z, double c) {
    const double under = std::max(0.0, 1 - y * z);
    return c * under * under;
  }
  static double Gap(double y, double z, double c, double beta) {
    const double under = 1 - y * z;
    const double alpha = y * beta;
    const double off = 0.5 * alpha / c - std::max(0.0, under);
    return c * off * off + (under < 0 ? -alpha * under : 0);
  }
};

// log(1 + exp(−yz)).
struct LogisticLoss {
  // The step has no closed form. With α = c/(1 + exp(−t)) its condition is
  //   h(t) = q(α(t) − α_now) + yz + t = 0,
  // in which h grows by at least 1 per t: Newton's method, kept between bounds of the root. It may
  // jump to and fro there, so a step that is not half of the one before is a bisection instead.
  static double Step(double y, double z, double q, double c, double beta) {
    const double now = y * beta;
    const double said = y * z;
    double low = -said - q * (c - now);
    double high = -said + q * now;
    double t = std::clamp(now <= 0 || now >= c ? -said : std::log(now / (c - now)), low, high);
    double before = high - low;
    for (int i = 0; i < kMostSteps; ++i) {
      const double share = 1 / (1 + std::exp(-t));
      const double h = q * (c * share - now) + said + t;
      if (h == 0) {
        break;
      }
      (h > 0 ? high : low) = t;
      const double newton = h / (q * c * share * (1 - share) + 1);
      const double next = t - newton;
      const bool is_good = next > low && next < high && 2 * std::abs(newton) <= before;
      const double to = is_good ? next : 0.5 * (low + high);
      before = std::abs(to - t);
      t = to;
      if (before <= kNear * (1 + std::abs(t))) {
        break;
      }
    }
    return y * c / (1 + std::exp(-t));
  }
  static double Loss(double y, double z, double c) {
    const double margin = y * z;  // neither way overflows
    return c * (margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin);
  }
  // c times the divergence of two Bernoulli distributions: of the dual, and of the prediction.
  static double Gap(double y, double z, double c, double beta) {
    const double share = std::clamp(y * beta / c, 0.0, 1.0);
    const double off = share - 1 / (1 + std::exp(y * z));
    if (std::abs(off) > 0.5 * std::min(share, 1 - share)) {
      const double entropy = (share > 0 ? share * std::log(share) : 0) +
                             (share < 1 ? (1 - share) * std::log1p(-share) : 0);
      return c * std::max(0.0, entropy + share * Loss(-y, z, 1) + (1 - share) * Loss(y, z, 1));
    }
    // By their difference, so that rounding errors vanish with it.
    return c * std::max(0.0, Part(share, -off) + Part(1 - share, off));
  }

 private:
  static constexpr int kMostSteps = 100;  // twice a bisection's, at worst
  static constexpr double kNear = 1e-15;

  // x·log(x / (x + change)).
  static double Part(double x, double change) { return x > 0 ? -x * std::log1p(change / x) : 0; }
};

// ½(y − z)²: of ridge regression.
struct SquaredLoss {
  static double Step(double y, double z, double q, double c, double beta) {
    return beta + (y - z - beta / c) / (q + 1 / c);
  }
  static double Loss(double y, double z, double c) { return 0.5 * c * (y - z) * (y - z); }
  static double Gap(double y, double z, double c, double beta) {
    const double off = beta / c - (y - z);
    return 0.5 * c * off * off;
  }
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_COCOA_LOSSES_H_
