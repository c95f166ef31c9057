#include "ops/runtime/sven/embedding_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ops/runtime/sven/embedding_fake_job.h"
#include "ops/runtime/sven/embedding_hash.h"
#include "ops/runtime/sven/embedding_importance.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EmbeddingScoresTest, AScoreIsEquation63) {
  EmbeddingScores scores;
  constexpr double kDecay = 0.1;  // the scale begins anew several times
  ASSERT_EQ(scores.Begin(RowPolicy::kScore, kDecay, {3, 50}), OkStatus());
  std::vector<double> expected(50);
  std::mt19937 random(1);
  for (int step = 0; step < 2000; ++step) {
    scores.BeginStep();
    std::vector<double> x(50);
    for (int i = 0; i < 5; ++i) {
      const size_t row = random() % 50;
      const auto weight = static_cast<float>(random() % 7);
      x[row] += weight;
      scores.Count(1, static_cast<int64_t>(row), weight);
    }
    for (size_t row = 0; row < 50; ++row) {
      expected[row] = (1 - kDecay) * expected[row] + kDecay * x[row];
      ASSERT_NEAR(scores.Of(1, static_cast<int64_t>(row)), expected[row],
                  1e-4 * (1e-3 + expected[row]))
          << step;
    }
  }
  EXPECT_EQ(scores.Of(0, 2), 0);
  EXPECT_GT(scores.Key(1, static_cast<int64_t>(std::max_element(expected.begin(), expected.end()) -
                                               expected.begin())),
            scores.Key(1, static_cast<int64_t>(std::min_element(expected.begin(), expected.end()) -
                                               expected.begin())));
}

TEST(EmbeddingScoresTest, OtherPoliciesOrderByTheLastUseAndByHowMany) {
  EmbeddingScores lru;
  EmbeddingScores lfu;
  ASSERT_EQ(lru.Begin(RowPolicy::kLru, 0, {4}), OkStatus());
  ASSERT_EQ(lfu.Begin(RowPolicy::kLfu, 0, {4}), OkStatus());
  for (const int64_t row : {1, 1, 2, 0}) {
    lru.BeginStep();
    lfu.BeginStep();
    lru.Count(0, row, 1);
    lfu.Count(0, row, 1);
  }
  EXPECT_THAT((std::vector<double>{lru.Of(0, 0), lru.Of(0, 1), lru.Of(0, 2), lru.Of(0, 3)}),
              ElementsAre(4, 2, 3, 0));
  EXPECT_THAT((std::vector<double>{lfu.Of(0, 0), lfu.Of(0, 1), lfu.Of(0, 2), lfu.Of(0, 3)}),
              ElementsAre(1, 2, 1, 0));
  for (int step = 0; step < 1 << 24; ++step) {
    lru.BeginStep();
  }
  lru.Count(0, 3, 1);
  lru.BeginStep();
  lru.Count(0, 2, 1);
  EXPECT_GT(lru.Of(0, 2), lru.Of(0, 3));
  EXPECT_GT(lru.Of(0, 3), lru.Of(0, 0));
}

TEST(EmbeddingScoresTest, ADecayMustBeOne) {
  EmbeddingScores scores;
  for (const double wrong : {0.0, 1.0, -1.0}) {
    EXPECT_FALSE(scores.Begin(RowPolicy::kScore, wrong, {3}).ok());
  }
  EXPECT_FALSE(scores.is_active());
}

TEST(RowSelectionTest, ChoosesLikeASort) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<EmbeddingRows> rows(2);
    ASSERT_EQ(EmbeddingRows::Make(40, 2, &rows[0]), OkStatus());
    ASSERT_EQ(EmbeddingRows::Make(30, 2, &rows[1]), OkStatus());
    std::vector<std::vector<uint32_t>> keys(2);
    std::vector<uint32_t> sorted;
    for (size_t shard = 0; shard < 2; ++shard) {
      for (int64_t row = 0; row < rows[shard].rows(); ++row) {
        const auto any = static_cast<uint32_t>(random());
        keys[shard].push_back(trial % 2 == 0 ? any : any % 4 << (trial % 3 * 15));
        sorted.push_back(keys[shard].back());
      }
    }
    std::sort(sorted.rbegin(), sorted.rend());
    const size_t most = random() % 80;
    const auto key = [&](size_t shard, int64_t row) {
      return keys[shard][static_cast<size_t>(row)];
    };
    const ChosenRows chosen = RowSelection(rows, key, nullptr).Largest(most * 8 + 7, true);
    std::vector<uint32_t> got;
    for (size_t shard = 0; shard < 2; ++shard) {
      for (size_t row = 0; row < chosen[shard].size(); ++row) {
        if (chosen[shard][row]) {
          got.push_back(keys[shard][row]);
        }
      }
    }
    std::sort(got.rbegin(), got.rend());
    sorted.resize(std::min<size_t>(70, most));
    EXPECT_EQ(got, sorted);
  }
}

TEST(EmbeddingHashTest, IsSplitMix64) {
  EXPECT_EQ(SplitMix64(0), 0xE220A8397B1DCDAF);
  EXPECT_EQ(HashedRow(0, 1000), static_cast<int64_t>(0xE220A8397B1DCDAF % 1000));
  EXPECT_GE(HashedRow(-5, 7), 0);
}

// Two ranks; "words" lies on both, by rows and by columns, its ids are hashed.
Plan WordsPlan(int64_t min_count, int64_t row_limit = 0) {
  EmbeddingTable words = {"words", 20, 4, {}};
  words.hashed = true;
  words.min_count = min_count;
  words.row_limit = row_limit;
  std::vector<EmbeddingShard> shards;
  AddGrid(2, 0, words, 2, 2, &shards);
  std::swap(shards[2].rank, shards[3].rank);  // each rank has a half of each row
  return MakePlan(2, {words}, shards);
}

TEST(EmbeddingImportanceTest, CountsSamplesByLabel) {
  FakeJob job(WordsPlan(0));
  std::mt19937_64 random(3);
  FakeFeature one = {"one", 0, {}, {0}};
  FakeFeature two = {"two", 0, {}, {0}};  // two samples for each label
  std::vector<float> labels;
  std::map<int64_t, double> expected;  // by row
  for (int sample = 0; sample < 12; ++sample) {
    labels.push_back(static_cast<float>(random() % 2));
    std::set<int64_t> rows;
    for (FakeFeature* const feature : {&one, &two}) {
      for (int part = 0; part < (feature == &one ? 1 : 2); ++part) {
        for (uint64_t i = random() % 4; i > 0; --i) {
          feature->ids.push_back(static_cast<int64_t>(random() % 30) * 1'000'000'007 - 5);
          rows.insert(HashedRow(feature->ids.back(), 20));
        }
        feature->splits.push_back(static_cast<int64_t>(feature->ids.size()));
      }
    }
    for (const int64_t row : rows) {
      expected[row] += labels.back() > 0.5F ? 3 : 0.5;
    }
  }
  job.Forward({{one, two}, {{"one", 0, {}, {0}}, {"two", 0, {}, {0}}}});
  std::vector<float> importance;
  std::vector<int64_t> splits;
  ASSERT_EQ(WeighRows(job.routing(0), ViewOf(labels), {3, 0.5F}, &importance, &splits), OkStatus());
  // Each rank is asked for the same rows, of which it has other columns.
  ASSERT_THAT(splits, ElementsAre(expected.size(), expected.size()));
  const auto* next = importance.data();
  for (size_t rank = 0; rank < 2; ++rank) {
    const std::vector<int64_t>& request = job.requests().buffers[rank];
    const auto counts = std::vector<int64_t>(request.begin(), request.begin() + 2);
    const int64_t* row = request.data() + 2;
    for (size_t i = 0; i < 2; ++i) {
      const EmbeddingShard& shard =
          job.routing(0).plan().shards()[job.routing(0).plan().shards_of(rank)[i]];
      for (int64_t j = 0; j < counts[i]; ++j) {
        EXPECT_EQ(*next++, expected[shard.first_row + *row++ * shard.row_stride]);
      }
    }
  }
  labels.resize(7);
  EXPECT_THAT(
      std::string(WeighRows(job.routing(0), ViewOf(labels), {}, &importance, &splits).message()),
      HasSubstr("'one' has 12 samples, to which 7 labels"));
}

class AdmissionTest : public testing::Test {
 protected:
  // A step of a job, in which rank 0 looks up one id and trains it.
  float Step(FakeJob* job, int64_t id) {
    const float before = job->Forward({{{"f", 0, {id}, {0, 1}}}, {{"f", 0, {}, {0}}}})[0][0][0];
    const std::vector<float> rates = {1};
    EXPECT_EQ(job->Backward({{{-1, -1, -1, -1}}, {{}}}, {ViewOf(rates), 1}), OkStatus());
    return before;
  }
  float Default(FakeJob* job, size_t rank, size_t shard) {
    float values[2];
    EXPECT_EQ(job->store(rank).Read(shard, 10, 1, false, values), OkStatus());
    return values[0];
  }
};

TEST_F(AdmissionTest, ARowIsTrainedForItselfAfterItWasSeenOftenEnough) {
  FakeJob job(WordsPlan(3));
  job.Fill(0, std::vector<float>(80, 50));
  EXPECT_EQ(Step(&job, 1), 0);  // the default row of its shard
  EXPECT_EQ(Step(&job, 1), 1);
  EXPECT_EQ(Step(&job, 1), 2);
  EXPECT_EQ(Step(&job, 1), 50);
  EXPECT_EQ(Step(&job, 1), 51);
  EXPECT_EQ(job.store(0).statistics().rows_admitted, 1U);
  const size_t piece = HashedRow(1, 20) % 2 == 0 ? 0 : 2;
  EXPECT_EQ(Default(&job, job.routing(0).plan().shards()[piece].rank, piece), 3);
  float value = 0;
  EXPECT_FALSE(job.store(0).Read(0, 11, 1, false, &value).ok());
}

TEST_F(AdmissionTest, BeyondTheLimitTheLowestScoresAreDropped) {
  for (const bool has_tiers : {false, true}) {
    FakeJob job(WordsPlan(1, 16), has_tiers ? TierOptions{testing::TempDir(), 40, nullptr}
                                            : TierOptions());  // 8 of a shard
    job.Fill(0, std::vector<float>(80, 50));
    std::vector<int64_t> ids;  // of the ten rows of one shard
    for (int64_t id = 0; ids.size() < 10; ++id) {
      const bool is_new = std::none_of(ids.begin(), ids.end(), [&](int64_t other) {
        return HashedRow(other, 20) == HashedRow(id, 20);
      });
      if (HashedRow(id, 20) % 2 == 0 && is_new) {
        ids.push_back(id);
      }
    }
    for (size_t i = 0; i < 8; ++i) {
      Step(&job, ids[i]);
      Step(&job, ids[i]);
      Step(&job, ids[0]);  // the first one is old, but often used
    }
    EXPECT_EQ(job.store(0).statistics().rows_dropped, 0U);
    const size_t piece = 0;
    Step(&job, ids[8]);
    // 7 of 9 are kept, so the two that were used least of late are dropped.
    EXPECT_EQ(job.store(0).statistics().rows_dropped, 2U);
    EXPECT_EQ(job.store(0).statistics().rows_admitted, 7U);
    const float fallback = Default(&job, job.routing(0).plan().shards()[piece].rank, piece);
    EXPECT_EQ(Step(&job, ids[1]), fallback);
    EXPECT_EQ(Step(&job, ids[1]), fallback) << "it starts as the default row was";
    EXPECT_GT(Step(&job, ids[0]), 55);
  }
}

TEST_F(AdmissionTest, OptionsAreChecked) {
  EmbeddingTable table = {"t", 4, 2, {}};
  table.row_limit = 3;
  Plan plan;
  const std::vector<EmbeddingShard> shards = {{0, 0, 0, 1, 4, 0, 2}};
  EXPECT_THAT(std::string(EmbeddingPlan::Make(1, {table}, shards, &plan).message()),
              HasSubstr("'t' has row_limit 3"));
  table.min_count = 70'000;
  EXPECT_THAT(std::string(EmbeddingPlan::Make(1, {table}, shards, &plan).message()),
              HasSubstr("min_count 70000"));
}

}  // namespace
}  // namespace trepak
