#include "ops/runtime/sven/embedding_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trepak {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Status Make(size_t ranks, int64_t vocabulary, int64_t dim, std::vector<EmbeddingShard> shards,
            std::shared_ptr<const EmbeddingPlan>* plan) {
  EmbeddingTable table;
  table.name = "user";
  table.vocabulary = vocabulary;
  table.dim = dim;
  return EmbeddingPlan::Make(ranks, {table}, std::move(shards), plan);
}

std::string Error(size_t ranks, int64_t vocabulary, int64_t dim,
                  std::vector<EmbeddingShard> shards) {
  std::shared_ptr<const EmbeddingPlan> plan;
  return std::string(Make(ranks, vocabulary, dim, std::move(shards), &plan).message());
}

TEST(EmbeddingPlanTest, FindsRowsThatGoRound) {
  std::shared_ptr<const EmbeddingPlan> plan;
  ASSERT_EQ(
      Make(3, 8, 4, {{0, 0, 0, 3, 3, 0, 4}, {0, 1, 1, 3, 3, 0, 4}, {0, 2, 2, 3, 2, 0, 4}}, &plan),
      OkStatus());
  int64_t place = -1;
  const EmbeddingGrid& grid = plan->grid(0);
  EXPECT_THAT(grid.blocks[grid.Find(7, &place)].shards, ElementsAre(1));
  EXPECT_EQ(place, 2);
  EXPECT_EQ(plan->RowOfTable(1, 2), 7);
}

TEST(EmbeddingPlanTest, FindsRowsInAMixOfCuts) {
  // Rows 0 to 3 are cut into two pieces of columns, the others are not.
  std::shared_ptr<const EmbeddingPlan> plan;
  ASSERT_EQ(
      Make(2, 10, 4, {{0, 1, 4, 1, 6, 0, 4}, {0, 0, 0, 1, 4, 0, 1}, {0, 1, 0, 1, 4, 1, 3}}, &plan),
      OkStatus());
  int64_t place = -1;
  const EmbeddingGrid& grid = plan->grid(0);
  EXPECT_THAT(grid.pieces, ElementsAre(0, 1, 4));
  EXPECT_THAT(grid.blocks[grid.Find(3, &place)].shards, ElementsAre(1, 2));
  const EmbeddingGrid::Block& block = grid.blocks[grid.Find(9, &place)];
  EXPECT_THAT(block.shards, ElementsAre(0, 0));
  EXPECT_EQ(place - block.first_row[0], 5);
  EXPECT_THAT(plan->shards_of(1), ElementsAre(0, 2));
}

TEST(EmbeddingPlanTest, MoreRanksThanRowsIsFine) {
  std::vector<EmbeddingShard> shards;
  for (int64_t i = 0; i < 8; ++i) {
    shards.push_back({0, static_cast<size_t>(i), i, 8, i < 3 ? 1 : 0, 0, 2});
  }
  EXPECT_EQ(Error(8, 3, 2, shards), "");
}

TEST(EmbeddingPlanTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(Error(1, 10, 4, {}), AllOf(HasSubstr("'user'"), HasSubstr("no shard has any")));
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, 0, 1, 9, 0, 4}}),
              HasSubstr("no shard has column 0 of row 9"));
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, 0, 1, 10, 0, 3}}),
              HasSubstr("no shard has column 3 of row 0"));
  EXPECT_THAT(Error(2, 10, 4, {{0, 0, 0, 2, 5, 0, 4}, {0, 1, 3, 2, 4, 0, 4}}),
              HasSubstr("no shard has column 0 of row 1"));
  EXPECT_THAT(Error(2, 10, 4, {{0, 0, 0, 3, 4, 0, 4}, {0, 1, 1, 3, 3, 0, 4}}),
              HasSubstr("a row stride of 3 needs as many shards"));
}

TEST(EmbeddingPlanTest, WhatIsThereTwiceIsNamed) {
  EXPECT_THAT(Error(2, 10, 4, {{0, 0, 0, 1, 10, 0, 3}, {0, 1, 5, 1, 5, 2, 2}}),
              HasSubstr("shard 0 (rank 0) and shard 1 (rank 1) both have column 2 of row 5"));
}

TEST(EmbeddingPlanTest, WhatIsOutsideIsNamed) {
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, 0, 1, 11, 0, 4}}), HasSubstr("beyond the 10 rows"));
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, 1, INT64_MAX, 2, 0, 4}}), HasSubstr("beyond the 10 rows"));
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, 0, 1, 10, 2, 3}}), HasSubstr("3 columns from 2 on, of 4"));
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, 0, 1, 10, INT64_MAX, INT64_MAX}}), HasSubstr("columns from"));
  EXPECT_THAT(Error(1, 10, 4, {{0, 1, 0, 1, 10, 0, 4}}), HasSubstr("on rank 1"));
  EXPECT_THAT(Error(1, 10, 4, {{1, 0, 0, 1, 10, 0, 4}}), HasSubstr("of table 1"));
  EXPECT_THAT(Error(1, 10, 4, {{0, 0, -1, 1, 10, 0, 4}}), HasSubstr("at least 0"));
  EXPECT_THAT(Error(2, 10, 4, {{0, 0, 0, 2, 5, 0, 4}, {0, 1, 1, 1, 1, 0, 4}}),
              HasSubstr("must have one row stride, but 2 and 1"));
  EXPECT_THAT(Error(1, 0, 4, {}), HasSubstr("must have rows and columns"));
}

}  // namespace
}  // namespace trepak
