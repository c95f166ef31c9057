#include "ops/runtime/chicle/cocoa_solver.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "ops/runtime/chicle/cocoa_losses.h"
#include "ops/runtime/chicle/cocoa_rows.h"

namespace trepak {
namespace {

constexpr size_t kAhead = 4;  // rows whose values are fetched before their turn

Status Wrong(const Chunk& chunk, const std::string& what) {
  return InvalidArgumentError("chunk " + std::to_string(chunk.id()) + " has " + what);
}

// A field of float64, of one value a sample or rows of `columns`.
Status FindDoubles(const Chunk& chunk, const std::string& name, double** values,
                   size_t* columns = nullptr) {
  const int i = chunk.Find(name);
  if (i < 0) {
    return Wrong(chunk, "no field '" + name + "', which linear models need");
  }
  const ChunkField& field = chunk.fields()[i];
  if (field.code != 2 || field.bits != 64 || field.is_sparse ||
      field.shape.size() != (columns == nullptr ? 0 : 1)) {
    return Wrong(chunk, "a field '" + name + "' of another type or shape than linear models need");
  }
  if (columns != nullptr) {
    *columns = field.shape[0];
  }
  *values = static_cast<double*>(chunk.arrays()[i].values);
  return OkStatus();
}

// Calls what takes a loss and a type of values, as its first and second template arguments.
template <typename Call>
void WithLoss(CocoaProblem::Loss loss, const Call& call) {
  switch (loss) {
    case CocoaProblem::Loss::kHinge:
      return call(HingeLoss());
    case CocoaProblem::Loss::kSquaredHinge:
      return call(SquaredHingeLoss());
    case CocoaProblem::Loss::kLogistic:
      return call(LogisticLoss());
    case CocoaProblem::Loss::kSquared:
      return call(SquaredLoss());
  }
}

struct Target {
  double y;
  double c;
};

Target TargetOf(const CocoaProblem& problem, double y, double weight) {
  if (!problem.has_classes) {
    return {y - problem.target_center, problem.c * weight};
  }
  return {y == problem.positive ? 1.0 : -1.0, problem.c * weight};
}

}  // namespace

std::vector<uint32_t> CocoaSolver::Order(size_t samples, uint64_t seed) {
  std::vector<uint32_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = samples; i > 1; --i) {
    seed += 0x9e3779b97f4a7c15;  // SplitMix64
    uint64_t drawn = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
    drawn = (drawn ^ (drawn >> 27)) * 0x94d049bb133111eb;
    drawn ^= drawn >> 31;
    std::swap(order[i - 1], order[((drawn >> 32) * i) >> 32]);
  }
  return order;
}

Status CocoaSolver::Prepare(const CocoaProblem& problem, size_t features) {
  const uint64_t version = store_->version();
  if (version != version_ || features != features_ || center_ != problem.center ||
      bias_ != problem.bias) {
    version_ = kNone;  // if it fails midway
    rows_.clear();
    columns_ = kNone;
    features_ = features;
    center_ = problem.center;
    center_norm_ = std::inner_product(center_.begin(), center_.end(), center_.begin(), 0.0);
    bias_ = problem.bias;
    chunks_ = store_->chunks();
    for (const auto& chunk : chunks_) {
      TREPAK_RETURN_IF_ERROR(AddRows(*chunk, problem, features));
    }
    version_ = version;
  }
  if (problem.column >= columns_) {
    return InvalidArgumentError("a task's chunks have duals of " + std::to_string(columns_) +
                                " models, so none of number " + std::to_string(problem.column));
  }
  return OkStatus();
}

Status CocoaSolver::AddRows(const Chunk& chunk, const CocoaProblem& problem, size_t features) {
  const int x = chunk.Find("x");
  if (x < 0) {
    return Wrong(chunk, "no field 'x', which linear models need");
  }
  const ChunkField& field = chunk.fields()[x];
  if (field.code != 2 || field.bits < 32 || field.shape.size() != 1 ||
      static_cast<size_t>(field.shape[0]) != features) {
    return Wrong(chunk, "a field 'x' that is not of " + std::to_string(features) +
                            " features of float32 or float64");
  }
  double *y = nullptr, *weights = nullptr, *duals = nullptr;
  size_t columns = 0;
  TREPAK_RETURN_IF_ERROR(FindDoubles(chunk, "y", &y));
  TREPAK_RETURN_IF_ERROR(FindDoubles(chunk, "weight", &weights));
  TREPAK_RETURN_IF_ERROR(FindDoubles(chunk, "alpha", &duals, &columns));
  columns_ = std::min(columns_, uint64_t{columns});
  if (!rows_.empty() && is_double_ != (field.bits == 64)) {
    return Wrong(chunk, "features of another type than the chunks before");
  }
  is_double_ = field.bits == 64;
  const ChunkArrays& arrays = chunk.arrays()[x];
  const auto* const values = static_cast<const char*>(arrays.values);
  for (uint32_t i = 0; i < chunk.samples(); ++i) {
    const int64_t begin = field.is_sparse ? arrays.starts[i] : int64_t{i} * field.shape[0];
    const int64_t end = field.is_sparse ? arrays.starts[i + 1] : begin + field.shape[0];
    Row row = {values + begin * field.element_bytes(),
               field.is_sparse ? arrays.columns + begin : nullptr,
               duals + i * columns,
               y[i],
               weights[i],
               0,
               0,
               static_cast<uint32_t>(end - begin),
               0};
    const auto set_norm = [&](const auto* own) {
      row.norm = cocoa::Norm(own, row.count) + problem.bias * problem.bias;
      if (!center_.empty()) {
        row.center = cocoa::Dot(own, row.columns, row.count, center_.data());
        row.norm += center_norm_ - 2 * row.center;
      }
    };
    is_double_ ? set_norm(static_cast<const double*>(row.values))
               : set_norm(static_cast<const float*>(row.values));
    rows_.push_back(row);
  }
  return OkStatus();
}

// v is w and σ′ times the task's change. Where samples are centered, v = u − shift·center is kept
// as u, shift and at_center = center·v, so that a step of a sparse row costs what its row has.
template <typename Loss, typename Value>
void CocoaSolver::Pass(const CocoaProblem& problem, const std::vector<uint32_t>& order,
                       size_t features, double* v) const {
  const double bias = problem.bias;
  const bool is_centered = !center_.empty();
  double shift = 0;
  double at_center = is_centered ? std::inner_product(center_.begin(), center_.end(), v, 0.0) : 0.0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i + kAhead < order.size()) {
      const Row& next = rows_[order[i + kAhead]];
      __builtin_prefetch(next.values);
      __builtin_prefetch(next.columns);
      __builtin_prefetch(next.duals + problem.column);
      __builtin_prefetch(&rows_[order[std::min(i + 2 * kAhead, order.size() - 1)]]);
    }
    const Row& row = rows_[order[i]];
    const auto* const values = static_cast<const Value*>(row.values);
    const Target target = TargetOf(problem, row.y, row.weight);
    if (target.c <= 0) {
      continue;
    }
    double said = cocoa::Dot(values, row.columns, row.count, v);
    if (bias != 0) {
      said += bias * v[features];
    }
    if (is_centered) {
      said -= shift * row.center + at_center;
    }
    double& beta = row.duals[problem.column];
    const double next = Loss::Step(target.y, said, problem.sigma * row.norm, target.c, beta);
    const double step = problem.sigma * (next - beta);
    if (step == 0) {
      continue;
    }
    beta = next;
    cocoa::AddTimes(step, values, row.columns, row.count, v);
    if (bias != 0) {
      v[features] += step * bias;
    }
    if (is_centered) {
      shift += step;
      at_center += step * (row.center - center_norm_);
    }
  }
  for (size_t i = 0; i < center_.size(); ++i) {
    v[i] -= shift * center_[i];
  }
}

Status CocoaSolver::Epoch(const CocoaProblem& problem, uint64_t seed, size_t count, size_t features,
                          const double* weights, double* change) {
  TREPAK_RETURN_IF_ERROR(store_->CheckThatTaskOwns("an epoch can't run"));
  TREPAK_RETURN_IF_ERROR(Prepare(problem, features));
  const size_t size = features + (problem.bias != 0 ? 1 : 0);
  std::copy_n(weights, size, change);
  std::vector<uint32_t> order = Order(rows_.size(), seed);
  order.resize(std::min(count, order.size()));
  WithLoss(problem.loss, [&](auto loss) {
    using Loss = decltype(loss);
    is_double_ ? Pass<Loss, double>(problem, order, features, change)
               : Pass<Loss, float>(problem, order, features, change);
  });
  for (size_t i = 0; i < size; ++i) {
    change[i] = (change[i] - weights[i]) / problem.sigma;
  }
  return OkStatus();
}

template <typename Loss, typename Value>
void CocoaSolver::Add(const CocoaProblem& problem, size_t features, const double* weights,
                      CocoaObjective* objective, double* sum) const {
  const double at_center = std::inner_product(center_.begin(), center_.end(), weights, 0.0);
  double shift = 0;
  for (const Row& row : rows_) {
    const Target target = TargetOf(problem, row.y, row.weight);
    if (target.c <= 0) {
      continue;
    }
    const auto* const values = static_cast<const Value*>(row.values);
    double said = cocoa::Dot(values, row.columns, row.count, weights) - at_center;
    if (problem.bias != 0) {
      said += problem.bias * weights[features];
    }
    const double beta = row.duals[problem.column];
    objective->losses += Loss::Loss(target.y, said, target.c);
    objective->gaps += Loss::Gap(target.y, said, target.c, beta);
    if (sum != nullptr && beta != 0) {
      cocoa::AddTimes(beta, values, row.columns, row.count, sum);
      shift += beta;
    }
  }
  if (sum == nullptr) {
    return;
  }
  if (problem.bias != 0) {
    sum[features] += shift * problem.bias;
  }
  for (size_t i = 0; i < center_.size(); ++i) {
    sum[i] -= shift * center_[i];
  }
}

Status CocoaSolver::Evaluate(const CocoaProblem& problem, size_t features, const double* weights,
                             CocoaObjective* objective, double* sum) {
  TREPAK_RETURN_IF_ERROR(Prepare(problem, features));
  WithLoss(problem.loss, [&](auto loss) {
    using Loss = decltype(loss);
    is_double_ ? Add<Loss, double>(problem, features, weights, objective, sum)
               : Add<Loss, float>(problem, features, weights, objective, sum);
  });
  return OkStatus();
}

}  // namespace trepak
