// Ranks with shards of any cut do what one rank with whole tables would.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/sven/embedding_fake_job.h"

namespace trepak {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr size_t kRanks = 3;

RowOptimizer Rule(RowRule rule) {
  RowOptimizer optimizer;
  optimizer.rule = rule;
  return optimizer;
}

// The second is so small that several ranks ask for each row.
const std::vector<EmbeddingTable>& Tables() {
  static const auto* const tables = new std::vector<EmbeddingTable>{
      {"user", 50, 6, Rule(RowRule::kAdagrad)},
      {"item", 4, 5, Rule(RowRule::kAdam)},
      {"word", 31, 9, Rule(RowRule::kFtrl)},
  };
  return *tables;
}

Plan WholeTables(size_t ranks) {
  std::vector<EmbeddingShard> shards;
  for (size_t table = 0; table < Tables().size(); ++table) {
    AddGrid(ranks, table, Tables()[table], 1, 1, &shards);
  }
  return MakePlan(ranks, Tables(), shards);
}

Plan Grids(const std::vector<std::pair<int64_t, int64_t>>& cuts) {
  std::vector<EmbeddingShard> shards;
  for (size_t table = 0; table < Tables().size(); ++table) {
    AddGrid(kRanks, table, Tables()[table], cuts[table].first, cuts[table].second, &shards);
  }
  return MakePlan(kRanks, Tables(), shards);
}

// Blocks of rows, of which the first is also cut by columns.
Plan Mixed() {
  std::vector<EmbeddingShard> shards = {
      {0, 2, 20, 1, 30, 0, 6}, {0, 1, 0, 1, 20, 0, 2}, {0, 0, 0, 1, 20, 2, 4}};
  AddGrid(kRanks, 1, Tables()[1], 2, 1, &shards);
  AddGrid(kRanks, 2, Tables()[2], 1, 2, &shards);
  return MakePlan(kRanks, Tables(), shards);
}

class Inputs {
 public:
  float Number() { return std::uniform_real_distribution<float>(-1, 1)(random_); }

  std::vector<float> Numbers(size_t count) {
    std::vector<float> numbers(count);
    for (float& number : numbers) {
      number = Number();
    }
    return numbers;
  }

  FakeFeature Feature(const std::string& name, size_t table, Combiner combiner, bool reduces) {
    FakeFeature made{name, table, {}, {0}, {}, combiner, reduces};
    for (int sample = 0; sample < 7; ++sample) {
      const int64_t count = reduces ? static_cast<int64_t>(random_() % 4) : 1;
      for (int64_t i = 0; i < count; ++i) {
        made.ids.push_back(
            static_cast<int64_t>(random_() % static_cast<uint64_t>(Tables()[table].vocabulary)));
      }
      made.splits.push_back(static_cast<int64_t>(made.ids.size()));
    }
    return made;
  }

  // Each table has several features, or one; some have weights.
  std::vector<FakeFeature> Features() {
    std::vector<FakeFeature> made = {
        Feature("viewer", 0, Combiner::kMean, true), Feature("seen", 1, Combiner::kSqrtn, true),
        Feature("author", 0, Combiner::kMean, false), Feature("words", 2, Combiner::kSum, true),
        Feature("friends", 0, Combiner::kSqrtn, true)};
    made[1].weights = Numbers(made[1].ids.size());
    made[2].weights = Numbers(made[2].ids.size());
    made[3].weights = Numbers(made[3].ids.size());
    return made;
  }

 private:
  std::mt19937 random_{7};
};

class EmbeddingJobTest : public testing::TestWithParam<int> {
 protected:
  static Plan PlanOf(int number) {
    switch (number) {
      case 0:
        return WholeTables(kRanks);
      case 1:
        return Grids({{3, 1}, {3, 1}, {3, 1}});
      case 2:
        return Grids({{1, 3}, {1, 5}, {1, 2}});
      case 3:
        return Grids({{4, 2}, {7, 1}, {2, 9}});
      default:
        return Mixed();
    }
  }
};

// All ranks' samples on one rank.
std::vector<FakeFeature> Joined(const std::vector<std::vector<FakeFeature>>& features) {
  std::vector<FakeFeature> joined = features[0];
  for (size_t rank = 1; rank < features.size(); ++rank) {
    for (size_t i = 0; i < joined.size(); ++i) {
      const FakeFeature& more = features[rank][i];
      const int64_t before = joined[i].splits.back();
      joined[i].ids.insert(joined[i].ids.end(), more.ids.begin(), more.ids.end());
      joined[i].weights.insert(joined[i].weights.end(), more.weights.begin(), more.weights.end());
      for (size_t sample = 1; sample < more.splits.size(); ++sample) {
        joined[i].splits.push_back(before + more.splits[sample]);
      }
    }
  }
  return joined;
}

TEST_P(EmbeddingJobTest, DoesWhatOneRankWithWholeTablesDoes) {
  FakeJob job(PlanOf(GetParam()));
  FakeJob whole(WholeTables(1));
  Inputs inputs;
  for (size_t table = 0; table < Tables().size(); ++table) {
    const std::vector<float> weights =
        inputs.Numbers(static_cast<size_t>(Tables()[table].vocabulary * Tables()[table].dim));
    job.Fill(table, weights);
    whole.Fill(table, weights);
    ASSERT_EQ(job.Weights(table), weights);
  }
  const std::vector<float> rates = {0.1F, 0.05F, 0.2F};
  for (int64_t number = 1; number <= 5; ++number) {
    std::vector<std::vector<FakeFeature>> features;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      features.push_back(inputs.Features());
    }
    const std::vector<FakeJob::Tensors> outputs = job.Forward(features);
    const FakeJob::Tensors expected = whole.Forward({Joined(features)})[0];
    std::vector<FakeJob::Tensors> gradients(kRanks);
    FakeJob::Tensors joined(expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      std::vector<float> got;
      for (size_t rank = 0; rank < kRanks; ++rank) {
        got.insert(got.end(), outputs[rank][i].begin(), outputs[rank][i].end());
        gradients[rank].push_back(inputs.Numbers(outputs[rank][i].size()));
        joined[i].insert(joined[i].end(), gradients[rank][i].begin(), gradients[rank][i].end());
      }
      EXPECT_THAT(got, Pointwise(FloatNear(2e-5F), expected[i])) << features[0][i].name;
    }
    const EmbeddingStore::Step step = {ViewOf(rates), number, 1.0F / kRanks};
    ASSERT_EQ(job.Backward(gradients, step), OkStatus());
    ASSERT_EQ(whole.Backward({joined}, step), OkStatus());
    for (size_t table = 0; table < Tables().size(); ++table) {
      EXPECT_THAT(job.Weights(table), Pointwise(FloatNear(2e-5F), whole.Weights(table)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EmbeddingJobTest, testing::Range(0, 5));

// What a sample's output is, by the definition.
TEST(EmbeddingCombineTest, CombinersDivideByWhatKerasRsDividesBy) {
  EmbeddingTable table{"t", 3, 2, {}};
  FakeJob job(MakePlan(1, {table}, {{0, 0, 0, 1, 3, 0, 2}}));
  job.Fill(0, {1, 2, 10, 20, 100, 200});
  FakeFeature feature{"f", 0, {0, 1, 1, 2, 0}, {0, 2, 2, 5}, {2, 3, 1, -1, 4}, Combiner::kSum};
  EXPECT_EQ(job.Forward({{feature}})[0][0], (std::vector<float>{32, 64, 0, 0, -86, -172}));
  feature.combiner = Combiner::kMean;
  EXPECT_EQ(job.Forward({{feature}})[0][0],
            (std::vector<float>{32.F / 5, 64.F / 5, 0, 0, -86.F / 4, -172.F / 4}));
  feature.combiner = Combiner::kSqrtn;
  EXPECT_EQ(job.Forward({{feature}})[0][0],
            (std::vector<float>{32 / std::sqrt(13.F), 64 / std::sqrt(13.F), 0, 0,
                                -86 / std::sqrt(18.F), -172 / std::sqrt(18.F)}));
  feature.weights.clear();
  EXPECT_EQ(job.Forward({{feature}})[0][0],
            (std::vector<float>{11 / std::sqrt(2.F), 22 / std::sqrt(2.F), 0, 0,
                                111 / std::sqrt(3.F), 222 / std::sqrt(3.F)}));
}

TEST(EmbeddingCombineTest, WeightsThatCancelGiveZeros) {
  EmbeddingTable table{"t", 2, 1, {}};
  FakeJob job(MakePlan(1, {table}, {{0, 0, 0, 1, 2, 0, 1}}));
  job.Fill(0, {5, 7});
  const FakeFeature feature{"f", 0, {0, 1}, {0, 2}, {1, -1}, Combiner::kMean};
  EXPECT_EQ(job.Forward({{feature}})[0][0], std::vector<float>{0});
  const std::vector<float> rates = {1};
  ASSERT_EQ(job.Backward({{{3}}}, {ViewOf(rates), 1, 1}), OkStatus());
  EXPECT_EQ(job.Weights(0), (std::vector<float>{5, 7}));
}

TEST(EmbeddingCombineTest, WhatIsNotReducedIgnoresWeightsButForSums) {
  EmbeddingTable table{"t", 2, 1, {}};
  FakeJob job(MakePlan(1, {table}, {{0, 0, 0, 1, 2, 0, 1}}));
  job.Fill(0, {5, 7});
  FakeFeature feature{"f", 0, {1, 0}, {0, 1, 2}, {0, 3}, Combiner::kSqrtn, false};
  EXPECT_EQ(job.Forward({{feature}})[0][0], (std::vector<float>{7, 5}));
  feature.combiner = Combiner::kSum;
  EXPECT_EQ(job.Forward({{feature}})[0][0], (std::vector<float>{0, 15}));
}

TEST(EmbeddingCombineTest, SizesThatDontFitAreNamed) {
  EmbeddingTable table{"t", 2, 1, {}};
  FakeJob job(MakePlan(1, {table}, {{0, 0, 0, 1, 2, 0, 1}}));
  job.Forward({{{"f", 0, {1, 0}, {0, 2}, {}, Combiner::kSum, true}}});
  const EmbeddingRouting& routing = job.routing(0);
  std::vector<float> memory(2);
  const std::vector<float> three(3);
  const auto combine = [&](const Reduction& reduction, size_t values) {
    return std::string(
        Combine(routing, {reduction}, {memory.data(), values}, {memory.data()}).message());
  };
  EXPECT_THAT(combine({Combiner::kSum, true, ViewOf(three)}, 2),
              HasSubstr("feature 'f' has 3 weights for 2 ids"));
  EXPECT_THAT(combine({Combiner::kSum, false, {}}, 2), HasSubstr("must have one id"));
  EXPECT_THAT(combine({}, 1), HasSubstr("1 numbers of embeddings came back, but 2"));
  EXPECT_THAT(std::string(Spread(routing, {Reduction()}, {ViewOf(three)}, memory.data()).message()),
              HasSubstr("has 3 numbers, but must have 1 rows of 1"));
}

}  // namespace
}  // namespace trepak
