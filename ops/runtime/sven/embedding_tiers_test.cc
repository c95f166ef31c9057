#include "ops/runtime/sven/embedding_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/net/full_disk.h"
#include "ops/runtime/sven/embedding_fake_device.h"
#include "ops/runtime/sven/embedding_fake_job.h"

namespace trepak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Folder() { return testing::TempDir(); }

TEST(EmbeddingFileTest, DiskIsTakenByBlocksBeforeTheyAreUsed) {
  std::unique_ptr<EmbeddingFile> file;
  const size_t bytes = 10 * EmbeddingFile::kBlock + 8;
  ASSERT_EQ(EmbeddingFile::Make(Folder(), bytes, &file), OkStatus());
  EXPECT_EQ(file->taken_bytes(), 0U);
  EXPECT_FALSE(file->Has(0, 1));
  ASSERT_EQ(file->Take(3 * EmbeddingFile::kBlock - 4, 8), OkStatus());  // in two blocks
  EXPECT_EQ(file->taken_bytes(), 2 * EmbeddingFile::kBlock);
  EXPECT_TRUE(file->Has(2 * EmbeddingFile::kBlock, 2 * EmbeddingFile::kBlock));
  EXPECT_FALSE(file->Has(4 * EmbeddingFile::kBlock - 4, 8));
  EXPECT_EQ(file->data()[3 * EmbeddingFile::kBlock], 0);
  file->data()[3 * EmbeddingFile::kBlock] = 5;
  ASSERT_EQ(file->Take(0, bytes), OkStatus());
  EXPECT_TRUE(file->is_whole());
  EXPECT_EQ(file->data()[3 * EmbeddingFile::kBlock], 5);
  EXPECT_EQ(file->data()[bytes - 1], 0);
}

TEST(EmbeddingFileTest, WhatFailsNamesTheFolderTheSizeAndTheRemedy) {
  std::unique_ptr<EmbeddingFile> file;
  EXPECT_THAT(std::string(EmbeddingFile::Make("/nowhere/at all", 77, &file).message()),
              AllOf(HasSubstr("'/nowhere/at all'"), HasSubstr("77 bytes"), HasSubstr("folder=")));
  ASSERT_EQ(EmbeddingFile::Make(Folder(), 10 * EmbeddingFile::kBlock, &file), OkStatus());
  const FullDisk full(3 * EmbeddingFile::kBlock);
  ASSERT_EQ(file->Take(0, 3 * EmbeddingFile::kBlock), OkStatus());
  EXPECT_THAT(std::string(file->Take(0, 4 * EmbeddingFile::kBlock).message()),
              AllOf(HasSubstr("'" + Folder() + "'"), HasSubstr("786432 of 2621440 bytes"),
                    HasSubstr("262144 more"), HasSubstr("free disk")));
  std::memset(file->data(), 1, 3 * EmbeddingFile::kBlock);
}

// Rows of 3 numbers, of which row r begins with r.
void FillRows(EmbeddingRows* rows) {
  for (int64_t row = 0; row < rows->rows(); ++row) {
    ASSERT_EQ(rows->MakePlace(row), OkStatus());
    rows->Row(row)[0] = static_cast<float>(row);
    rows->Row(row)[2] = -1;
  }
}

TEST(EmbeddingRowsTest, NumbersAreTheSameWhereverARowLies) {
  EmbeddingRows rows;
  ASSERT_EQ(EmbeddingRows::MakeInFile(1000, 3, Folder(), &rows), OkStatus());
  ASSERT_EQ(rows.SetSlots(100), OkStatus());
  FillRows(&rows);
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    if (trial % 10 == 9) {
      ASSERT_EQ(rows.SetSlots(random() % 200), OkStatus());
    }
    std::vector<bool> chosen(1000);
    for (size_t i = 0; i < rows.slots(); ++i) {
      chosen[random() % 1000] = true;
    }
    EmbeddingRows::Moves moves;
    ASSERT_EQ(rows.Place(chosen, &moves), OkStatus());
    for (int64_t row = 0; row < 1000; ++row) {
      ASSERT_EQ(rows.IsFast(row), chosen[static_cast<size_t>(row)]);
      ASSERT_EQ(rows.Row(row)[0], static_cast<float>(row));
      ASSERT_EQ(rows.Row(row)[1]++, static_cast<float>(trial));
      ASSERT_EQ(rows.Row(row)[2], -1);
    }
  }
  EmbeddingRows moved;
  moved = std::move(rows);
  EXPECT_EQ(moved.Row(999)[0], 999);
}

TEST(EmbeddingRowsTest, ARowThatNobodyHasTouchedIsZeroWhereAnotherHasBeen) {
  EmbeddingRows rows;
  ASSERT_EQ(EmbeddingRows::MakeInFile(1 << 16, 3, Folder(), &rows), OkStatus());
  ASSERT_EQ(rows.SetSlots(1), OkStatus());
  EmbeddingRows::Moves moves;
  std::vector<bool> chosen(1 << 16);
  chosen[0] = true;
  ASSERT_EQ(rows.Place(chosen, &moves), OkStatus());
  rows.Row(0)[0] = 7;
  chosen[0] = false;
  chosen.back() = true;  // in another block of the file
  ASSERT_EQ(rows.Place(chosen, &moves), OkStatus());
  EXPECT_EQ(rows.Row((1 << 16) - 1)[0], 0);
  EXPECT_EQ(rows.Row(0)[0], 7);
}

TEST(EmbeddingRowsTest, WhereThereIsNoDiskNothingMoves) {
  EmbeddingRows rows;
  const auto count = static_cast<int64_t>(4 * EmbeddingFile::kBlock / 12);
  ASSERT_EQ(EmbeddingRows::MakeInFile(count, 3, Folder(), &rows), OkStatus());
  ASSERT_EQ(rows.SetSlots(2), OkStatus());
  std::vector<bool> chosen(static_cast<size_t>(count));
  chosen[0] = chosen[static_cast<size_t>(count - 1)] = true;
  EmbeddingRows::Moves moves;
  ASSERT_EQ(rows.Place(chosen, &moves), OkStatus());
  EXPECT_EQ(moves.in, 2U);
  EXPECT_EQ(rows.disk_bytes(), 0U);  // none has been touched at home
  rows.Row(0)[0] = 7;
  rows.Row(count - 1)[0] = 8;
  const FullDisk full(EmbeddingFile::kBlock);
  EXPECT_FALSE(rows.HasPlace(count - 2));
  EXPECT_FALSE(rows.MakePlace(count - 2).ok());
  std::fill(chosen.begin(), chosen.end(), false);
  EXPECT_FALSE(rows.Place(chosen, &moves).ok());
  EXPECT_TRUE(rows.IsFast(0) && rows.IsFast(count - 1));
  EXPECT_EQ(rows.Row(0)[0], 7);
  EXPECT_EQ(rows.Row(count - 1)[0], 8);
}

RowOptimizer Rule(RowRule rule) {
  RowOptimizer optimizer;
  optimizer.rule = rule;
  return optimizer;
}

constexpr size_t kRanks = 2;

Plan MixedPlan() {
  const std::vector<EmbeddingTable> tables = {{"a", 300, 5, Rule(RowRule::kAdagrad)},
                                              {"b", 77, 4, Rule(RowRule::kAdam)}};
  std::vector<EmbeddingShard> shards;
  AddGrid(kRanks, 0, tables[0], 2, 1, &shards);
  AddGrid(kRanks, 1, tables[1], 1, 2, &shards);
  return MakePlan(kRanks, tables, shards);
}

std::vector<std::vector<FakeFeature>> Batch(std::mt19937* random) {
  std::vector<std::vector<FakeFeature>> features(kRanks);
  std::geometric_distribution<int64_t> skewed(0.02);
  for (std::vector<FakeFeature>& mine : features) {
    mine = {{"f", 0, {}, {0}}, {"g", 1, {}, {0}}};
    for (int sample = 1; sample <= 20; ++sample) {
      for (FakeFeature& feature : mine) {
        const int64_t rows = feature.table == 0 ? 300 : 77;
        feature.ids.push_back(std::min(rows - 1, skewed(*random)));
        feature.ids.push_back(static_cast<int64_t>((*random)()) % rows);
        feature.splits.push_back(2 * sample);
      }
    }
  }
  return features;
}

// Trains; after each step `between` may do something to the stores. Returns both tables.
template <typename Between>
std::vector<std::vector<float>> Train(FakeJob* job, const Between& between) {
  std::mt19937 random(5);
  const std::vector<float> rates = {0.1F, 0.2F};
  job->Fill(0, std::vector<float>(300 * 5, 0.5F));
  job->Fill(1, std::vector<float>(77 * 4, -0.5F));
  for (int step = 1; step <= 40; ++step) {
    std::vector<FakeJob::Tensors> outputs = job->Forward(Batch(&random));
    for (FakeJob::Tensors& mine : outputs) {
      for (std::vector<float>& output : mine) {
        for (float& number : output) {
          number = number * 0.3F + static_cast<float>(random() % 100) * 0.01F;
        }
      }
    }
    EXPECT_EQ(job->Backward(outputs, {ViewOf(rates), step, 0.5F}), OkStatus());
    between(step);
  }
  return {job->Weights(0), job->Weights(1)};
}

class TrainingInTiers : public testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kFast = 1000;  // bytes

  // Each rank has a device of its own.
  static std::vector<TierOptions> Tiers() {
    const std::string slow_and_fast = GetParam();
    const bool is_in_file = slow_and_fast.find("File") != std::string::npos;
    std::vector<TierOptions> tiers(kRanks, {is_in_file ? Folder() : "", kFast, nullptr});
    for (TierOptions& mine : tiers) {
      if (slow_and_fast.find("Device") != std::string::npos) {
        mine.device = std::make_shared<FakeDevice>();
      }
    }
    return tiers;
  }
};

TEST_P(TrainingInTiers, IsTheSameBitForBit) {
  FakeJob plain(MixedPlan());
  const auto expected = Train(&plain, [](int) {});
  FakeJob tiered(MixedPlan(), Tiers());
  std::vector<EmbeddingStore*> stores = {&tiered.store(0), &tiered.store(1)};
  const auto got = Train(&tiered, [&](int step) {
    for (EmbeddingStore* const store : stores) {
      PlacedRows placed;
      if (step == 10) {
        EXPECT_EQ(store->Track({RowPolicy::kLru}), OkStatus());
      } else if (step < 10 || step % 8 == 0) {
        EXPECT_EQ(store->Place({true, static_cast<uint64_t>(step)}, &placed), OkStatus());
      } else {
        EXPECT_EQ(store->Replace(&placed), OkStatus());
      }
    }
  });
  EXPECT_EQ(std::memcmp(expected[0].data(), got[0].data(), expected[0].size() * 4), 0);
  EXPECT_EQ(std::memcmp(expected[1].data(), got[1].data(), expected[1].size() * 4), 0);
  const EmbeddingStatistics found = tiered.store(0).statistics();
  EXPECT_GT(found.evictions, 100U);
  EXPECT_GT(found.fast_rows, 100U);
  EXPECT_LE(found.fast_bytes, kFast);
  EXPECT_GT(found.fast_bytes, kFast - 100);
  EXPECT_EQ(found.disk_bytes > 0, Tiers()[0].folder != "");
  EXPECT_EQ(plain.store(0).statistics().fast_bytes, plain.store(0).statistics().bytes);
}

INSTANTIATE_TEST_SUITE_P(Memories, TrainingInTiers,
                         testing::Values("FileAndMemory", "MemoryAndDevice", "FileAndDevice"),
                         [](const auto& one) { return std::string(one.param); });

// A table of more rows than are read from the file at once.
TEST(EmbeddingTiersTest, ManyRowsOfOneLookUpAreEachTheirOwn) {
  constexpr int64_t kRows = 5000;
  const std::vector<EmbeddingTable> tables = {{"long", kRows, 3, Rule(RowRule::kAdagrad)}};
  const Plan plan = MakePlan(1, tables, {{0, 0, 0, 1, kRows, 0, 3}});
  std::vector<float> weights(kRows * 3);
  FakeFeature all{"f", 0, {}, {0}};
  for (int64_t row = 0; row < kRows; ++row) {
    weights[static_cast<size_t>(row) * 3] = static_cast<float>(row);
    all.ids.push_back(kRows - 1 - row);
    all.splits.push_back(row + 1);
  }
  const std::vector<float> rates = {0.1F};
  std::vector<std::vector<float>> found;
  for (const TierOptions& tiers : {TierOptions{}, TierOptions{Folder(), 8000, nullptr}}) {
    FakeJob job(plan, tiers);
    job.Fill(0, weights);
    PlacedRows placed;
    if (!tiers.folder.empty()) {
      ASSERT_EQ(job.store(0).Place({true, 1}, &placed), OkStatus());
      EXPECT_GT(placed.fast_rows, 100U);
    }
    std::vector<FakeJob::Tensors> outputs = job.Forward({{all}});
    ASSERT_EQ(job.Backward(outputs, {ViewOf(rates)}), OkStatus());
    found.push_back(outputs[0][0]);
    found.push_back(job.Weights(0));
  }
  EXPECT_EQ(found[0][0], static_cast<float>(kRows - 1));
  EXPECT_EQ(found[0], found[2]);
  EXPECT_EQ(found[1], found[3]);
  EXPECT_NE(found[1], weights);
}

TEST(EmbeddingTiersTest, HotRowsOfAllTablesShareTheBudget) {
  FakeJob job(MixedPlan(), TierOptions{Folder(), 2000, nullptr});
  EmbeddingStore& store = job.store(0);
  PlacedRows placed;
  EXPECT_THAT(std::string(store.Place({}, &placed).message()), HasSubstr("not been counted"));
  ASSERT_EQ(store.Track({RowPolicy::kLfu}), OkStatus());
  const uint64_t before = store.statistics().fast_rows;
  Train(&job, [](int) {});
  const uint64_t meanwhile = store.statistics().fast_rows - before;
  ASSERT_EQ(store.Place({}, &placed), OkStatus());
  const double hot = placed.fast_scores / placed.scores;
  EXPECT_EQ(placed.rows, 150U + 77U);
  EXPECT_LE(store.statistics().fast_bytes, 2000U);
  EXPECT_GT(store.statistics().fast_bytes, 2000U - 40U);
  // The same again: what the placement expects is what is measured.
  const EmbeddingStatistics first = store.statistics();
  Train(&job, [](int) {});
  const EmbeddingStatistics second = store.statistics();
  const auto fast = static_cast<double>(second.fast_rows - first.fast_rows);
  EXPECT_DOUBLE_EQ(fast / static_cast<double>(second.rows_looked_up - first.rows_looked_up), hot);
  EXPECT_GT(second.fast_rows - first.fast_rows, meanwhile);
  ASSERT_EQ(store.Place({true, 3}, &placed), OkStatus());
  EXPECT_LT(placed.fast_scores / placed.scores, hot);
  EXPECT_GT(placed.fast_rows, 30U);
}

TEST(EmbeddingTiersTest, AFullDiskIsAnErrorAndNothingIsApplied) {
  const std::vector<EmbeddingTable> tables = {{"wide", 1 << 20, 16, {}}};  // 64 MiB
  const Plan plan = MakePlan(1, tables, {{0, 0, 0, 1, 1 << 20, 0, 16}});
  FakeJob job(plan, TierOptions{Folder(), 0, nullptr});
  const FullDisk full(1 << 20);
  const std::vector<float> rates = {1};
  const std::vector<FakeFeature> near = {{"f", 0, {5}, {0, 1}}};
  ASSERT_EQ(job.Forward({near})[0][0][0], 0);
  EXPECT_EQ(job.Backward({{std::vector<float>(16, 1)}}, {ViewOf(rates)}), OkStatus());
  const std::vector<int64_t> requests = {2, 5, 1 << 19};
  const std::vector<int64_t> splits = {3};
  EmbeddingRequests parsed;
  ASSERT_EQ(job.store(0).Parse(ViewOf(requests), ViewOf(splits), &parsed), OkStatus());
  std::vector<float> values(32, 1);
  EXPECT_THAT(std::string(job.store(0).LookUp(parsed, values.data()).message()),
              AllOf(HasSubstr("rank 0: embedding table 'wide'"), HasSubstr("67108864 bytes")));
  EXPECT_FALSE(job.store(0).Update(parsed, ViewOf(values), {ViewOf(rates)}).ok());
  EXPECT_EQ(job.Forward({near})[0][0][0], -1);
  EXPECT_FALSE(job.store(0).Read(0, 1 << 19, 1, false, values.data()).ok());
  EXPECT_FALSE(job.store(0).Write(0, 1 << 19, 1, false, values.data()).ok());
}

TEST(EmbeddingTiersTest, ALostDeviceIsNamed) {
  const auto device = std::make_shared<FakeDevice>();
  const std::vector<EmbeddingTable> tables = {{"wide", 10, 4, {}}};
  FakeJob job(MakePlan(1, tables, {{0, 0, 0, 1, 10, 0, 4}}), TierOptions{"", 160, device});
  const std::vector<float> rates = {1};
  const std::vector<FakeFeature> near = {{"f", 0, {5}, {0, 1}}};
  ASSERT_EQ(job.Forward({near})[0][0][0], 0);
  device->FailAfter(1);  // rows come to memory, and do not go back
  EXPECT_THAT(std::string(job.Backward({{std::vector<float>(4, 1)}}, {ViewOf(rates)}).message()),
              AllOf(HasSubstr("rank 0: embedding table 'wide'"), HasSubstr("in part only"),
                    HasSubstr("last checkpoint"), HasSubstr("the device is lost")));
}

// The thread sanitizer watches.
TEST(EmbeddingTiersTest, RowsMoveBesideLookUps) {
  FakeJob job(MixedPlan(), TierOptions{Folder(), 1000, nullptr});
  Train(&job, [](int) {});
  const std::vector<float> before = job.Weights(0);
  std::atomic<bool> done{false};
  std::thread mover([&] {
    for (uint64_t seed = 0; !done; ++seed) {
      PlacedRows placed;
      EXPECT_EQ(job.store(0).Place({true, seed}, &placed), OkStatus());
    }
  });
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(job.Weights(0), before);
    (void)job.store(0).statistics();
  }
  done = true;
  mover.join();
}

TEST(EmbeddingTiersTest, WhatIsMissingIsNamed) {
  std::shared_ptr<EmbeddingStore> store;
  EXPECT_THAT(
      std::string(EmbeddingStore::Make(MixedPlan(), 0, {"", 10, nullptr}, &store).message()),
      HasSubstr("folder="));
  EXPECT_THAT(
      std::string(EmbeddingStore::Make(MixedPlan(), 1, {"/nowhere", 0, nullptr}, &store).message()),
      AllOf(HasSubstr("rank 1: embedding table 'a'"), HasSubstr("/nowhere")));
  FakeJob plain(MixedPlan());
  PlacedRows placed;
  EXPECT_THAT(std::string(plain.store(1).Place({}, &placed).message()),
              AllOf(HasSubstr("rank 1"), HasSubstr("folder=")));
}

}  // namespace
}  // namespace trepak
