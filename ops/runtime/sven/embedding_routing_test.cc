#include "ops/runtime/sven/embedding_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/runtime/sven/embedding_fake_job.h"

namespace trepak {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Plan TwoTables() {
  const std::vector<EmbeddingTable> tables = {{"user", 10, 3, {}}, {"item", 8, 2, {}}};
  // Users go round, items are cut by columns: rank 0 has shards 0 and 2, rank 1 shards 1 and 3.
  return MakePlan(
      2, tables,
      {{0, 0, 0, 2, 5, 0, 3}, {0, 1, 1, 2, 5, 0, 3}, {1, 0, 0, 1, 8, 0, 1}, {1, 1, 0, 1, 8, 1, 1}});
}

struct Routed {
  Status status;
  std::vector<int64_t> requests;
  std::shared_ptr<const EmbeddingRouting> routing;
  bool allocated = false;
};

Routed Route(const Plan& plan, const std::vector<FakeFeature>& features) {
  Routed routed;
  std::vector<FeatureIds> ids;
  for (const FakeFeature& one : features) {
    ids.push_back({one.name, one.table, ViewOf(one.ids), ViewOf(one.splits)});
  }
  const auto allocate = [&](size_t count) {
    routed.allocated = true;
    routed.requests.resize(count);
    return routed.requests.data();
  };
  routed.status = EmbeddingRouting::Make(plan, ids, allocate, &routed.routing);
  return routed;
}

TEST(EmbeddingRoutingTest, RequestsAreCountsAndThenRowsWithoutDuplicates) {
  const Routed routed =
      Route(TwoTables(),
            {{"a", 0, {7, 2, 7}, {0, 3}}, {"b", 1, {6}, {0, 1}}, {"c", 0, {2, 9}, {0, 1, 2}}});
  ASSERT_EQ(routed.status, OkStatus());
  EXPECT_THAT(routed.requests, ElementsAre(/*rank 0:*/ 1, 1, 1, 6, /*rank 1:*/ 2, 1, 3, 4, 6));
  EXPECT_THAT(routed.routing->request_splits(), ElementsAre(4, 5));
  EXPECT_THAT(routed.routing->value_splits(), ElementsAre(3 + 1, 6 + 1));
  EXPECT_EQ(routed.routing->ids(), 6U);
  EXPECT_EQ(routed.routing->rows(), 4U);
  EXPECT_EQ(routed.routing->features()[2].numbers[0], 1U);  // that row 2 has in the table
  EXPECT_EQ(*routed.routing->places(0, 0), 4);              // row 7, behind what rank 0 sends
  EXPECT_EQ(*routed.routing->places(0, 2), 7);              // row 9
  EXPECT_EQ(routed.routing->places(1, 0)[0], 3);            // row 6, from both ranks
  EXPECT_EQ(routed.routing->places(1, 0)[1], 10);
}

TEST(EmbeddingRoutingTest, WithoutIdsThereAreOnlyCounts) {
  const Routed routed = Route(TwoTables(), {{"a", 0, {}, {0, 0, 0}}});
  ASSERT_EQ(routed.status, OkStatus());
  EXPECT_THAT(routed.requests, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(routed.routing->values(), 0U);
  EXPECT_THAT(Route(TwoTables(), {}).requests, ElementsAre(0, 0, 0, 0));
}

TEST(EmbeddingRoutingTest, AnIdThatIsNotThereIsNamedBeforeAnythingIsSent) {
  for (const int64_t id : {int64_t{-1}, int64_t{10}, INT64_MIN, INT64_MAX}) {
    const Routed routed = Route(TwoTables(), {{"a", 0, {7, 2}, {0, 2}}, {"b", 0, {3, id}, {0, 2}}});
    EXPECT_THAT(std::string(routed.status.message()),
                AllOf(HasSubstr("feature 'b'"), HasSubstr("position 1"),
                      HasSubstr(" is " + std::to_string(id) + ","), HasSubstr("'user'"),
                      HasSubstr("vocabulary of 10")));
    EXPECT_FALSE(routed.allocated);
  }
}

TEST(EmbeddingRoutingTest, WrongSplitsAreNamed) {
  const std::vector<std::vector<int64_t>> wrong = {{}, {0}, {1, 2}, {0, 1}, {0, 3}, {0, 3, 2}};
  for (const std::vector<int64_t>& splits : wrong) {
    const Routed routed = Route(TwoTables(), {{"a", 0, {7, 2}, splits}});
    EXPECT_THAT(std::string(routed.status.message()), HasSubstr("feature 'a': its row splits"));
  }
  EXPECT_THAT(std::string(Route(TwoTables(), {{"a", 2, {}, {0}}}).status.message()),
              HasSubstr("of table 2"));
}

TEST(EmbeddingRoutingTest, ATableOfABillionRowsCostsNothing) {
  constexpr int64_t kRows = 1'000'000'000;
  const std::vector<EmbeddingTable> tables = {{"huge", kRows, 4, {}}};
  std::vector<EmbeddingShard> shards;
  AddGrid(1000, 0, tables[0], 1000, 1, &shards);
  const Plan plan = MakePlan(1000, tables, shards);
  const Routed routed = Route(plan, {{"a", 0, {kRows - 1}, {0, 1}}});
  ASSERT_EQ(routed.status, OkStatus());
  EXPECT_EQ(routed.requests.size(), 1001U);
  EXPECT_EQ(routed.requests.back(), kRows / 1000 - 1);
}

// Regular ids, which a careless hash function puts into one place.
TEST(EmbeddingRoutingTest, ManyIdsOfAnyPatternAreFound) {
  const std::vector<EmbeddingTable> tables = {{"t", int64_t{1} << 36, 1, {}}};
  const Plan plan = MakePlan(1, tables, {{0, 0, 0, 1, int64_t{1} << 36, 0, 1}});
  for (const int shift : {0, 3, 16, 20}) {
    FakeFeature feature{"a", 0, {}, {0, 20'000}};
    for (int64_t i = 0; i < 20'000; ++i) {
      feature.ids.push_back((i % 10'000) << shift);
    }
    const Routed routed = Route(plan, {feature});
    ASSERT_EQ(routed.requests.size(), 10'001U);
    for (size_t i = 0; i < 10'000; ++i) {
      ASSERT_EQ(routed.requests[i + 1], static_cast<int64_t>(i) << shift);
    }
  }
}

}  // namespace
}  // namespace trepak
