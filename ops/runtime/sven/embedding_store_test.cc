#include "ops/runtime/sven/embedding_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/sven/embedding_fake_job.h"

namespace trepak {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

RowOptimizer Adagrad() {
  RowOptimizer optimizer;
  optimizer.rule = RowRule::kAdagrad;
  optimizer.initial_accumulator_value = 0.5F;
  return optimizer;
}

// Two ranks; this store is rank 1's, with the odd rows of "user" and all of "item".
class EmbeddingStoreTest : public testing::Test {
 protected:
  EmbeddingStoreTest() {
    const std::vector<EmbeddingTable> tables = {{"user", 10, 2, Adagrad()}, {"item", 4, 1, {}}};
    const Plan plan =
        MakePlan(2, tables, {{0, 0, 0, 2, 5, 0, 2}, {0, 1, 1, 2, 5, 0, 2}, {1, 1, 0, 1, 4, 0, 1}});
    EXPECT_EQ(EmbeddingStore::Make(plan, 1, &store_), OkStatus());
  }

  Status Parse(const std::vector<int64_t>& buffer, const std::vector<int64_t>& splits) {
    buffer_ = buffer;
    return store_->Parse(ViewOf(buffer_), ViewOf(splits), &requests_);
  }
  std::string Error(const std::vector<int64_t>& buffer, const std::vector<int64_t>& splits) {
    return std::string(Parse(buffer, splits).message());
  }

  Status Update(const std::vector<float>& gradients, float scale = 1) {
    return store_->Update(requests_, ViewOf(gradients), {ViewOf(rates_), 1, scale});
  }

  std::vector<float> Read(size_t shard, int64_t first, int64_t count, bool with_slots) {
    size_t width = 0;
    EXPECT_EQ(store_->Width(shard, with_slots, &width), OkStatus());
    std::vector<float> values(static_cast<size_t>(count) * width);
    EXPECT_EQ(store_->Read(shard, first, count, with_slots, values.data()), OkStatus());
    return values;
  }

  std::shared_ptr<EmbeddingStore> store_;
  std::vector<int64_t> buffer_;
  EmbeddingRequests requests_;  // views of it
  const std::vector<float> rates_ = {0.1F, 0.5F};
};

TEST_F(EmbeddingStoreTest, LooksUpWhatEachRankAsksFor) {
  const std::vector<float> users = {0, 1, 10, 11, 20, 21, 30, 31, 40, 41};
  const std::vector<float> items = {5, 6, 7, 8};
  ASSERT_EQ(store_->Write(1, 0, 5, false, users.data()), OkStatus());
  ASSERT_EQ(store_->Write(2, 0, 4, false, items.data()), OkStatus());
  ASSERT_EQ(Parse({1, 2, 4, 3, 0, 2, 0, 2, 2}, {5, 4}), OkStatus());
  EXPECT_THAT(requests_.value_splits(), ElementsAre(4, 4));
  std::vector<float> values(requests_.values());
  EXPECT_TRUE(store_->LookUp(requests_, values.data()).ok());
  EXPECT_THAT(values, ElementsAre(40, 41, 8, 5, 20, 21, 20, 21));
  EXPECT_EQ(store_->statistics().lookups, 1U);
  EXPECT_EQ(store_->statistics().rows_looked_up, 5U);
  EXPECT_EQ(store_->statistics().bytes_answered, 8 * sizeof(float));
}

TEST_F(EmbeddingStoreTest, SlotsAreInitialisedAndKeptWithTheirRow) {
  EXPECT_THAT(Read(1, 4, 1, true), ElementsAre(0, 0, 0.5F, 0.5F));
  const std::vector<float> record = {1, 2, 3, 4};
  ASSERT_EQ(store_->Write(1, 3, 1, true, record.data()), OkStatus());
  const std::vector<float> weights = {8, 9};
  ASSERT_EQ(store_->Write(1, 3, 1, false, weights.data()), OkStatus());
  EXPECT_THAT(Read(1, 3, 1, true), ElementsAre(8, 9, 3, 4));
  EXPECT_THAT(Read(1, 2, 1, false), ElementsAre(0, 0));
  EXPECT_EQ(store_->statistics().bytes, (5 * 4 + 4) * sizeof(float));
}

TEST_F(EmbeddingStoreTest, RowsOfOthersCantBeRead) {
  float value = 0;
  EXPECT_THAT(std::string(store_->Read(0, 0, 1, false, &value).message()),
              HasSubstr("rank 1 has no shard 0"));
  EXPECT_THAT(std::string(store_->Write(1, 4, 2, false, &value).message()),
              HasSubstr("shard 1 has 5 rows, not 2 from 4 on"));
  EXPECT_FALSE(store_->Read(1, -1, 1, false, &value).ok());
  EXPECT_FALSE(store_->Read(1, INT64_MAX, INT64_MAX, false, &value).ok());
}

TEST_F(EmbeddingStoreTest, ARowIsUpdatedOnceWithTheSum) {
  // Both ranks ask for item 2, one of them twice.
  ASSERT_EQ(Parse({0, 2, 2, 2, 0, 2, 1, 2}, {4, 4}), OkStatus());
  ASSERT_EQ(Update({1, 2, 100, 4}, 0.5F), OkStatus());
  EXPECT_THAT(Read(2, 0, 4, false), ElementsAre(0, -25, -0.5F * 3.5F, 0));
  EXPECT_EQ(store_->statistics().rows_updated, 2U);
  EXPECT_EQ(store_->statistics().updates, 1U);
}

TEST_F(EmbeddingStoreTest, WhatIsNotFiniteIsNamedAndNothingIsApplied) {
  ASSERT_EQ(Parse({1, 1, 3, 0, 0, 1, 2}, {4, 3}), OkStatus());
  for (const float wrong : {kNan, HUGE_VALF, -HUGE_VALF}) {
    EXPECT_THAT(std::string(Update({1, wrong, 1, 1}).message()),
                AllOf(HasSubstr("row 7 of embedding table 'user'"), HasSubstr("not finite")));
    EXPECT_THAT(std::string(Update({1, 1, 1, wrong}).message()),
                HasSubstr("row 2 of embedding table 'item'"));
  }
  EXPECT_FALSE(Update({1, 1, 1, 1}, kNan).ok());
  EXPECT_THAT(Read(1, 0, 5, false), Each(0.0F));
  EXPECT_THAT(Read(2, 0, 4, false), Each(0.0F));
  EXPECT_EQ(store_->statistics().rows_updated, 0U);
  // Each is finite, the sum is not.
  ASSERT_EQ(Parse({0, 1, 3, 0, 1, 3}, {3, 3}), OkStatus());
  EXPECT_FALSE(Update({3e38F, 3e38F}).ok());
}

TEST_F(EmbeddingStoreTest, WhatAnUpdateNeedsMustFit) {
  ASSERT_EQ(Parse({0, 1, 3, 0, 0}, {3, 2}), OkStatus());
  EXPECT_THAT(std::string(Update({1, 2}).message()), HasSubstr("have 2 numbers"));
  const std::vector<float> one = {1};
  EXPECT_THAT(std::string(store_->Update(requests_, ViewOf(one), {ViewOf(one), 1, 1}).message()),
              HasSubstr("1 learning rates for 2 tables"));
  const std::vector<float> rates = {1, kNan};
  EXPECT_THAT(std::string(store_->Update(requests_, ViewOf(one), {ViewOf(rates), 1, 1}).message()),
              HasSubstr("'item': the learning rate is not finite"));
}

TEST_F(EmbeddingStoreTest, WrongRequestsNameTheirSender) {
  EXPECT_THAT(Error({0, 0}, {2}), HasSubstr("from 2 ranks, but are of 1"));
  EXPECT_THAT(Error({0, 0, 0}, {2, 1}), HasSubstr("request of rank 1: it ends after 1 of 2"));
  EXPECT_THAT(Error({0, 0, 0, 0}, {2, -2}), HasSubstr("rank 1 is said to have -2"));
  EXPECT_THAT(Error({0, 0, 0, 0}, {2, 3}), HasSubstr("rank 1 is said to have 3"));
  EXPECT_THAT(Error({0, 0, 0, 0}, {INT64_MAX, 2}), HasSubstr("rank 0 is said to have"));
  EXPECT_THAT(Error({0, 0, 0, 0, 1}, {2, 2}), HasSubstr("there are 1 numbers of none"));
  EXPECT_THAT(Error({0, 0, -1, 1}, {2, 2}), HasSubstr("request of rank 1: it asks for -1 rows"));
  EXPECT_THAT(Error({0, 0, 2, 0, 1}, {2, 3}), HasSubstr("it asks for 2 rows of shard 1"));
  EXPECT_THAT(Error({1, INT64_MAX, 0, 0, 0}, {3, 2}), HasSubstr("request of rank 0: it asks for"));
  EXPECT_THAT(Error({0, 0, 1, 0, 0, 0}, {2, 4}), HasSubstr("has 4 numbers, but asks with only 3"));
  EXPECT_THAT(Error({0, 0, 1, 0, 5}, {2, 3}), HasSubstr("its row 0 of shard 1 is 5"));
  EXPECT_THAT(Error({0, 0, 0, 1, -1}, {2, 3}), HasSubstr("its row 0 of shard 2 is -1"));
}

// The address sanitizer watches.
TEST_F(EmbeddingStoreTest, GarbageIsRefusedOrHarmless) {
  std::mt19937_64 random(3);
  size_t accepted = 0;
  for (int trial = 0; trial < 100'000; ++trial) {
    std::vector<int64_t> splits(2);
    std::vector<int64_t> buffer(4 + random() % 6);
    for (int64_t& number : buffer) {
      number = random() % 40 == 0
                   ? static_cast<int64_t>(random())
                   : static_cast<int64_t>(random() % 4) - (random() % 50 == 0 ? 1 : 0);
    }
    splits[0] = static_cast<int64_t>(random() % buffer.size());
    splits[1] = static_cast<int64_t>(buffer.size()) - splits[0] - (random() % 30 == 0 ? 1 : 0);
    if (!Parse(buffer, splits).ok()) {
      continue;
    }
    ++accepted;
    std::vector<float> values(requests_.values());
    EXPECT_TRUE(store_->LookUp(requests_, values.data()).ok());
    ASSERT_EQ(Update(values), OkStatus());
  }
  EXPECT_GT(accepted, 100U);
}

// The thread sanitizer watches, and what is looked up is all of one update.
TEST_F(EmbeddingStoreTest, LookUpsSeeWholeUpdates) {
  ASSERT_EQ(Parse({0, 4, 0, 1, 2, 3, 0, 0}, {6, 2}), OkStatus());
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      std::vector<float> values(4);
      while (!done) {
        EXPECT_TRUE(store_->LookUp(requests_, values.data()).ok());
        EXPECT_THAT(values, Each(values[0]));
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(Update({1, 1, 1, 1}), OkStatus());
  }
  done = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
}

}  // namespace
}  // namespace trepak
