// Small linear problems for tests.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_COCOA_TESTING_H_
#define TREPAK_OPS_RUNTIME_CHICLE_COCOA_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "ops/runtime/chicle/chunk_testing.h"
#include "ops/runtime/chicle/cocoa_solver.h"

namespace trepak {

inline CocoaProblem ProblemOf(CocoaProblem::Loss loss, double c = 1) {
  CocoaProblem problem;
  problem.loss = loss;
  problem.c = c;
  problem.has_classes = loss != CocoaProblem::Loss::kSquared;
  return problem;
}

// Samples whose labels a planted model decides, with some noise.
struct LinearSamples {
  std::vector<std::vector<double>> x;
  std::vector<double> y;
  std::vector<double> weights;

  size_t features() const { return x.front().size(); }
  // A part of them.
  LinearSamples From(size_t begin, size_t end) const {
    const auto cut = [&](auto all) {
      return decltype(all)(all.begin() + begin, all.begin() + end);
    };
    return {cut(x), cut(y), cut(weights)};
  }
};

// Of float32's values; about a third of them are zeros. y: classes 0 and 1, or numbers.
inline LinearSamples DrawSamples(size_t samples, size_t features, bool has_classes, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> planted(features);
  for (double& one : planted) {
    one = normal(random);
  }
  LinearSamples drawn;
  for (size_t i = 0; i < samples; ++i) {
    std::vector<double> row(features);
    for (double& one : row) {
      one = random() % 3 == 0 ? 0 : static_cast<float>(normal(random));
    }
    const double said =
        std::inner_product(row.begin(), row.end(), planted.begin(), 0.3) + 0.5 * normal(random);
    drawn.x.push_back(row);
    drawn.y.push_back(has_classes ? (said > 0 ? 1.0 : 0.0) : said);
    drawn.weights.push_back(1);
  }
  return drawn;
}

enum class Layout { kDense32, kDense64, kSparse32, kSparse64 };

inline ChunkField FeaturesField(const LinearSamples& samples, Layout layout) {
  const auto features = static_cast<int64_t>(samples.features());
  const uint8_t bits = layout == Layout::kDense32 || layout == Layout::kSparse32 ? 32 : 64;
  if (layout == Layout::kDense32 || layout == Layout::kDense64) {
    return DenseField("x", {features}, bits);
  }
  uint64_t nonzeros = 0;
  for (const auto& row : samples.x) {
    for (const double one : row) {
      nonzeros += one != 0 ? 1 : 0;
    }
  }
  return SparseField("x", features, nonzeros, bits);
}

template <typename Value>
void FillFeatures(const LinearSamples& samples, bool is_sparse, const ChunkArrays& arrays) {
  auto* value = static_cast<Value*>(arrays.values);
  auto* column = const_cast<int32_t*>(arrays.columns);
  for (size_t i = 0; i < samples.x.size(); ++i) {
    for (size_t k = 0; k < samples.features(); ++k) {
      if (is_sparse && samples.x[i][k] == 0) {
        continue;
      }
      *value++ = static_cast<Value>(samples.x[i][k]);
      if (is_sparse) {
        *column++ = static_cast<int32_t>(k);
      }
    }
    if (is_sparse) {
      const_cast<int64_t*>(arrays.starts)[i + 1] = column - arrays.columns;
    }
  }
}

inline std::shared_ptr<Chunk> ChunkOf(uint64_t id, const LinearSamples& samples, Layout layout,
                                      int64_t models = 1) {
  const ChunkField x = FeaturesField(samples, layout);
  auto chunk = MadeChunk(
      id, static_cast<uint32_t>(samples.x.size()),
      {x, DenseField("y", {}, 64), DenseField("weight", {}, 64), StateField("alpha", {models})});
  const auto& arrays = chunk->arrays();
  x.bits == 32 ? FillFeatures<float>(samples, x.is_sparse, arrays[0])
               : FillFeatures<double>(samples, x.is_sparse, arrays[0]);
  std::copy(samples.y.begin(), samples.y.end(), static_cast<double*>(arrays[1].values));
  std::copy(samples.weights.begin(), samples.weights.end(), static_cast<double*>(arrays[2].values));
  EXPECT_EQ(chunk->CheckRows(), OkStatus());
  return chunk;
}

inline void ExpectNear(const std::vector<double>& a, const std::vector<double>& b,
                       double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], tolerance) << "at " << i;
  }
}

// A task with some samples, in chunks of up to `most` of them.
struct CocoaTask {
  CocoaTask(const LinearSamples& samples, Layout layout, uint64_t first_id = 0, size_t most = 16) {
    for (size_t begin = 0; begin < samples.x.size(); begin += most) {
      const size_t end = std::min(begin + most, samples.x.size());
      EXPECT_EQ(store->Add(ChunkOf(first_id++, samples.From(begin, end), layout)), OkStatus());
    }
  }

  // Of the first `count` samples.
  std::vector<double> Epoch(const CocoaProblem& problem, uint64_t seed, size_t features,
                            const std::vector<double>& weights, size_t count = ~size_t{0}) {
    std::vector<double> change(weights.size());
    EXPECT_EQ(store->Begin(false), OkStatus());
    EXPECT_EQ(solver.Epoch(problem, seed, count, features, weights.data(), change.data()),
              OkStatus());
    EXPECT_EQ(store->End(false), OkStatus());
    return change;
  }

  std::vector<double> Duals() const {
    std::vector<double> duals;
    for (const auto& chunk : store->chunks()) {
      const auto* const alpha = static_cast<const double*>(chunk->arrays()[3].values);
      duals.insert(duals.end(), alpha, alpha + chunk->samples());
    }
    return duals;
  }

  std::shared_ptr<ChunkStore> store = std::make_shared<ChunkStore>();
  CocoaSolver solver{store};
};

// All tasks of a job, as they would be trained.
struct CocoaJob {
  CocoaJob(CocoaProblem asked, const LinearSamples& samples, Layout layout, size_t tasks_ = 1)
      : problem(std::move(asked)), features(samples.features()) {
    weights.resize(features + (problem.bias != 0 ? 1 : 0));
    const size_t part = (samples.x.size() + tasks_ - 1) / tasks_;
    for (size_t i = 0; i < tasks_; ++i) {
      const size_t end = std::min((i + 1) * part, samples.x.size());
      tasks.push_back(std::make_unique<CocoaTask>(samples.From(i * part, end), layout, 100 * i));
    }
  }

  void Epoch(uint64_t seed) {
    std::vector<double> sum(weights.size());
    for (auto& task : tasks) {
      const std::vector<double> change = task->Epoch(problem, seed, features, weights);
      std::transform(sum.begin(), sum.end(), change.begin(), sum.begin(), std::plus<>());
    }
    std::transform(weights.begin(), weights.end(), sum.begin(), weights.begin(), std::plus<>());
  }

  struct Objectives {
    double primal = 0;
    double gap = 0;
    std::vector<double> sum;  // Σ βx
    double dual() const { return primal - gap; }
  };

  Objectives Evaluate() {
    CocoaObjective all;
    Objectives made;
    made.sum.resize(weights.size());
    for (auto& task : tasks) {
      EXPECT_EQ(task->solver.Evaluate(problem, features, weights.data(), &all, made.sum.data()),
                OkStatus());
    }
    const double half =
        0.5 * std::inner_product(weights.begin(), weights.end(), weights.begin(), 0.0);
    made.primal = half + all.losses;
    made.gap = all.gaps;
    return made;
  }

  CocoaProblem problem;
  size_t features;
  std::vector<double> weights;
  std::vector<std::unique_ptr<CocoaTask>> tasks;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_COCOA_TESTING_H_
