#include "ops/runtime/chicle/cocoa_solver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ops/runtime/chicle/cocoa_testing.h"

namespace trepak {
namespace {

using testing::HasSubstr;
using Loss = CocoaProblem::Loss;

constexpr Loss kLosses[] = {Loss::kHinge, Loss::kSquaredHinge, Loss::kLogistic, Loss::kSquared};

LinearSamples SamplesFor(Loss loss, size_t samples = 40, size_t features = 6, uint32_t seed = 1) {
  return DrawSamples(samples, features, loss != Loss::kSquared, seed);
}

TEST(CocoaSolverTest, TheGapGoesToZeroAndIsNeverNegative) {
  for (const Loss loss : kLosses) {
    for (const double bias : {0.0, 1.0}) {
      CocoaProblem problem = ProblemOf(loss, 0.3);
      problem.bias = bias;
      CocoaJob job(problem, SamplesFor(loss), Layout::kDense64);
      double dual = -std::numeric_limits<double>::infinity();
      double gap = 0;
      double primal = 0;
      for (uint64_t epoch = 0; epoch < 1500; ++epoch) {
        job.Epoch(epoch);
        const auto objectives = job.Evaluate();
        gap = objectives.gap;
        primal = objectives.primal;
        ASSERT_GE(gap, 0);
        ASSERT_GE(objectives.dual(), dual - 1e-12 * std::abs(dual)) << "it climbs with each step";
        dual = objectives.dual();
      }
      EXPECT_LE(gap, 1e-9 * std::abs(primal)) << "loss " << static_cast<int>(loss);
      ExpectNear(job.Evaluate().sum, job.weights, 1e-10);
    }
  }
}

TEST(CocoaSolverTest, SparseRowsAreTheSameSamplesAsDenseOnes) {
  for (const Loss loss : kLosses) {
    for (const bool is_centered : {false, true}) {
      CocoaProblem problem = ProblemOf(loss);
      problem.bias = 0.5;
      if (is_centered) {
        problem.center = {0.5, -0.25, 0, 1, 2, -1};
      }
      const LinearSamples samples = SamplesFor(loss);
      CocoaJob dense(problem, samples, Layout::kDense64);
      dense.Epoch(1);
      dense.Epoch(2);
      for (const Layout layout : {Layout::kDense32, Layout::kSparse32, Layout::kSparse64}) {
        CocoaJob other(problem, samples, layout);
        other.Epoch(1);
        other.Epoch(2);
        ExpectNear(other.weights, dense.weights, 1e-10);
        ExpectNear(other.tasks[0]->Duals(), dense.tasks[0]->Duals(), 1e-10);
        EXPECT_NEAR(other.Evaluate().gap, dense.Evaluate().gap, 1e-9);
        ExpectNear(other.Evaluate().sum, dense.Evaluate().sum, 1e-10);
      }
    }
  }
}

TEST(CocoaSolverTest, ABiasIsALastFeatureOfAllSamples) {
  for (const Loss loss : kLosses) {
    LinearSamples samples = SamplesFor(loss);
    CocoaProblem problem = ProblemOf(loss);
    problem.bias = 1.5;
    for (const Layout layout : {Layout::kDense64, Layout::kSparse32}) {
      CocoaJob with_bias(problem, samples, layout);
      LinearSamples longer = samples;
      for (auto& row : longer.x) {
        row.push_back(1.5);
      }
      CocoaJob with_column(ProblemOf(loss), longer, layout);
      for (uint64_t epoch = 0; epoch < 3; ++epoch) {
        with_bias.Epoch(epoch);
        with_column.Epoch(epoch);
      }
      ExpectNear(with_bias.weights, with_column.weights, 1e-10);
      EXPECT_NEAR(with_bias.Evaluate().gap, with_column.Evaluate().gap, 1e-9);
    }
  }
}

TEST(CocoaSolverTest, ACenterIsTakenFromEverySample) {
  const std::vector<double> center = {0.5, -0.25, 0, 1, 2, -1};
  for (const Loss loss : kLosses) {
    for (const double bias : {0.0, 0.5}) {
      const LinearSamples samples = SamplesFor(loss);
      LinearSamples moved = samples;
      for (auto& row : moved.x) {
        std::transform(row.begin(), row.end(), center.begin(), row.begin(), std::minus<>());
      }
      CocoaProblem problem = ProblemOf(loss);
      problem.bias = bias;
      CocoaJob explicitly(problem, moved, Layout::kDense64);
      problem.center = center;
      for (const Layout layout : {Layout::kDense64, Layout::kSparse64}) {
        CocoaJob centered(problem, samples, layout);
        CocoaJob again(explicitly.problem, moved, Layout::kDense64);
        for (uint64_t epoch = 0; epoch < 3; ++epoch) {
          centered.Epoch(epoch);
          again.Epoch(epoch);
        }
        ExpectNear(centered.weights, again.weights, 1e-9);
        EXPECT_NEAR(centered.Evaluate().gap, again.Evaluate().gap, 1e-9);
        ExpectNear(centered.Evaluate().sum, again.Evaluate().sum, 1e-9);
      }
    }
  }
}

TEST(CocoaSolverTest, ATargetsCenterIsTakenFromEveryTarget) {
  LinearSamples samples = SamplesFor(Loss::kSquared);
  CocoaProblem problem = ProblemOf(Loss::kSquared);
  problem.target_center = 2;
  CocoaJob centered(problem, samples, Layout::kDense64);
  for (double& y : samples.y) {
    y -= 2;
  }
  CocoaJob explicitly(ProblemOf(Loss::kSquared), samples, Layout::kDense64);
  centered.Epoch(1);
  explicitly.Epoch(1);
  ExpectNear(centered.weights, explicitly.weights, 1e-12);
}

// With σ′ = K, adding up what K tasks have found never overshoots (Smith et al., Lemma 3).
TEST(CocoaSolverTest, TasksThatAddTheirChangesClimbTogether) {
  for (const Loss loss : kLosses) {
    for (const size_t tasks : {2, 5}) {
      CocoaProblem problem = ProblemOf(loss, 0.3);
      problem.sigma = static_cast<double>(tasks);
      problem.bias = 1;
      CocoaJob job(problem, SamplesFor(loss), Layout::kSparse64, tasks);
      double dual = -std::numeric_limits<double>::infinity();
      double gap = 0;
      for (uint64_t epoch = 0; epoch < 2500; ++epoch) {
        job.Epoch(epoch);
        const auto objectives = job.Evaluate();
        ASSERT_GE(objectives.gap, 0);
        ASSERT_GE(objectives.dual(), dual - 1e-12 * std::abs(dual));
        dual = objectives.dual();
        gap = objectives.gap / std::abs(objectives.primal);
      }
      EXPECT_LE(gap, 1e-8);
      ExpectNear(job.Evaluate().sum, job.weights, 1e-9);
    }
  }
}

TEST(CocoaSolverTest, WeightsAreRepeatsOfSamples) {
  const LinearSamples once = SamplesFor(Loss::kLogistic, 12);
  LinearSamples weighted = once;
  LinearSamples dropped = once.From(0, 10);
  for (size_t i = 0; i < 10; ++i) {
    weighted.weights[i] = 2;
  }
  weighted.weights[10] = weighted.weights[11] = 0;
  CocoaProblem problem = ProblemOf(Loss::kLogistic);
  CocoaJob a(problem, weighted, Layout::kDense64);
  problem.c = 2;
  CocoaJob b(problem, dropped, Layout::kDense64);
  for (uint64_t epoch = 0; epoch < 300; ++epoch) {
    a.Epoch(epoch);
    b.Epoch(epoch);
  }
  EXPECT_NEAR(a.Evaluate().primal, b.Evaluate().primal, 1e-9);
  ExpectNear(a.weights, b.weights, 1e-7);
  EXPECT_EQ(a.tasks[0]->Duals()[11], 0) << "a sample of no weight is never stepped on";
}

// Chunks that another task brings, with their duals: nothing is lost.
TEST(CocoaSolverTest, ChunksThatChangeHandsTakeTheirDualsAlong) {
  CocoaProblem problem = ProblemOf(Loss::kHinge);
  problem.sigma = 2;
  CocoaJob job(problem, SamplesFor(Loss::kHinge, 96), Layout::kSparse32, 2);
  std::mt19937 random(1);
  for (uint64_t epoch = 0; epoch < 60; ++epoch) {
    job.Epoch(epoch);
    const size_t from = random() % 2;
    const auto chunks = job.tasks[from]->store->chunks();
    if (chunks.size() > 1) {
      std::shared_ptr<Chunk> moved;
      const uint64_t id = chunks[random() % chunks.size()]->id();
      ASSERT_EQ(job.tasks[from]->store->Take(id, &moved), OkStatus());
      ASSERT_EQ(job.tasks[1 - from]->store->Add(moved), OkStatus());
    }
    const auto objectives = job.Evaluate();
    ExpectNear(objectives.sum, job.weights, 1e-9);
    ASSERT_GE(objectives.gap, 0);
  }
  EXPECT_EQ(job.tasks[0]->solver.samples() + job.tasks[1]->solver.samples(), 96u);
}

TEST(CocoaSolverTest, AnEpochMayTakeSomeSamplesOnly) {
  const std::vector<uint32_t> order = CocoaSolver::Order(40, 3);
  CocoaTask task(SamplesFor(Loss::kLogistic), Layout::kDense64);
  task.Epoch(ProblemOf(Loss::kLogistic), 3, 6, std::vector<double>(6), /*count=*/25);
  const std::vector<double> duals = task.Duals();
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(duals[order[i]] != 0, i < 25) << i;
  }
}

TEST(CocoaSolverTest, ATaskWithoutSamplesChangesNothing) {
  CocoaTask task(LinearSamples(), Layout::kDense64);
  EXPECT_EQ(task.Epoch(ProblemOf(Loss::kHinge), 1, 3, {1, 2, 3}), std::vector<double>({0, 0, 0}));
}

TEST(CocoaSolverTest, AnEpochIsTheTasks) {
  CocoaTask task(SamplesFor(Loss::kHinge), Layout::kDense64);
  std::vector<double> weights(6), change(6);
  const Status status =
      task.solver.Epoch(ProblemOf(Loss::kHinge), 1, 40, 6, weights.data(), change.data());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

// What was prepared for one call must not be taken for another's, outside of its arrays.
TEST(CocoaSolverTest, WhatDoesNotFitTheChunksIsAnError) {
  CocoaTask task(SamplesFor(Loss::kHinge), Layout::kSparse64);
  CocoaProblem problem = ProblemOf(Loss::kHinge);
  std::vector<double> weights(6);
  CocoaObjective objective;
  const auto evaluate = [&](size_t features) {
    return task.solver.Evaluate(problem, features, weights.data(), &objective, nullptr);
  };
  ASSERT_EQ(evaluate(6), OkStatus());
  EXPECT_THAT(std::string(evaluate(5).message()), HasSubstr("not of 5 features"));
  EXPECT_FALSE(evaluate(5).ok()) << "nor is what the failed one has left";
  EXPECT_EQ(evaluate(6), OkStatus());
  problem.column = 1;
  EXPECT_THAT(std::string(evaluate(6).message()),
              HasSubstr("have duals of 1 models, so none of number 1"));
}

TEST(CocoaSolverTest, ChunksOfOtherFieldsAreErrors) {
  const auto error_of = [](std::vector<ChunkField> fields) {
    auto store = std::make_shared<ChunkStore>();
    EXPECT_EQ(store->Add(MadeChunk(4, 3, std::move(fields))), OkStatus());
    CocoaSolver solver(store);
    const std::vector<double> weights(2);
    CocoaObjective objective;
    const Status status =
        solver.Evaluate(ProblemOf(Loss::kHinge), 2, weights.data(), &objective, nullptr);
    return std::string(status.message());
  };
  const ChunkField x = DenseField("x", {2}), y = DenseField("y", {}, 64);
  const ChunkField weight = DenseField("weight", {}, 64), alpha = StateField("alpha", {1});
  EXPECT_EQ(error_of({x, y, weight, alpha}), "");
  EXPECT_THAT(error_of({y, weight, alpha}), HasSubstr("chunk 4 has no field 'x'"));
  EXPECT_THAT(error_of({x, weight, alpha}), HasSubstr("no field 'y'"));
  EXPECT_THAT(error_of({x, y, alpha}), HasSubstr("no field 'weight'"));
  EXPECT_THAT(error_of({x, y, weight}), HasSubstr("no field 'alpha'"));
  EXPECT_THAT(error_of({DenseField("x", {3}), y, weight, alpha}), HasSubstr("2 features"));
  EXPECT_THAT(error_of({DenseField("x", {2}, 16), y, weight, alpha}), HasSubstr("'x' that is not"));
  EXPECT_THAT(error_of({x, DenseField("y", {}), weight, alpha}), HasSubstr("field 'y' of another"));
  EXPECT_THAT(error_of({x, y, weight, StateField("alpha", {})}), HasSubstr("'alpha' of another"));
}

TEST(CocoaSolverTest, OrdersAreOfAllSamplesAndOfTheirSeed) {
  const std::vector<uint32_t> order = CocoaSolver::Order(1000, 7);
  EXPECT_EQ(CocoaSolver::Order(1000, 7), order);
  EXPECT_NE(CocoaSolver::Order(1000, 8), order);
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(sorted[i], i);
  }
  EXPECT_TRUE(CocoaSolver::Order(0, 1).empty());
}

}  // namespace
}  // namespace trepak
