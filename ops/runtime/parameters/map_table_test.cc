#include "ops/runtime/parameters/map_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "ops/runtime/net/undisturbed.h"

namespace trepak {
namespace {

// Four layers, the last two fully connected.
void Fill(MapTable* table) {
  for (int layer = 1; layer <= 4; ++layer) {
    for (const char* kind : {"/kernel", "/bias"}) {
      ASSERT_TRUE(table->Record("layer" + std::to_string(layer) + kind, {layer, layer > 2}).ok());
    }
  }
}

std::vector<int> Priorities(MapTable* table) {
  std::vector<int> found;
  for (int layer = 1; layer <= 4; ++layer) {
    found.push_back(table->PriorityOf("layer" + std::to_string(layer) + "/kernel"));
  }
  return found;
}

TEST(MapTableTest, CoarseIsConvHighAndFullyConnectedLow) {
  MapTable table;
  Fill(&table);
  EXPECT_EQ(Priorities(&table), std::vector<int>({0, 0, 1, 1}));
}

TEST(MapTableTest, ThresholdSplitsByUrgency) {
  MapTable table;
  Fill(&table);
  EXPECT_DOUBLE_EQ(table.UrgencyOf("layer1/bias"), 0.75);  // 1 - l/L
  EXPECT_DOUBLE_EQ(table.UrgencyOf("layer4/bias"), 0.0);
  const std::vector<std::pair<double, std::vector<int>>> cases = {{0.75, {1, 1, 1, 1}},
                                                                  {0.5, {0, 1, 1, 1}},
                                                                  {0.3, {0, 0, 1, 1}},
                                                                  {0.0, {0, 0, 0, 1}},
                                                                  {-0.1, {0, 0, 0, 0}}};
  for (const auto& [threshold, expected] : cases) {
    ASSERT_TRUE(table.SetThresholds({threshold}).ok());
    EXPECT_EQ(Priorities(&table), expected) << threshold;
  }
}

TEST(MapTableTest, SeveralThresholdsMakeSeveralPriorities) {
  MapTable table;
  Fill(&table);
  ASSERT_TRUE(table.SetThresholds({0.6, 0.4, 0.1}).ok());
  EXPECT_EQ(Priorities(&table), std::vector<int>({0, 1, 2, 3}));
  EXPECT_FALSE(table.SetThresholds({0.1, 0.4}).ok());
  EXPECT_EQ(Priorities(&table), std::vector<int>({0, 1, 2, 3}));
}

TEST(MapTableTest, UnknownParametersAreHigh) {
  MapTable table;
  EXPECT_EQ(table.PriorityOf("unknown"), 0);
}

TEST(MapTableTest, ParametersHaveOnePlace) {
  MapTable table;
  Fill(&table);
  EXPECT_TRUE(table.Record("layer1/bias", {1, false}).ok());
  EXPECT_FALSE(table.Record("layer1/bias", {2, false}).ok());
}

TEST(MapTableTest, LateLayersChangeUrgencies) {
  MapTable table;
  Fill(&table);
  ASSERT_TRUE(table.SetThresholds({0.3}).ok());
  EXPECT_EQ(table.PriorityOf("layer3/bias"), 1);
  ASSERT_TRUE(table.Record("layer8/bias", {8, false}).ok());
  EXPECT_EQ(table.PriorityOf("layer3/bias"), 0);
}

TEST(MapTableTest, LookUpsAreCheap) {
  // The paper's claim: under 1 ms an iteration, at 680 slices too.
  MapTable table;
  Fill(&table);
  table.PriorityOf("layer1/kernel");
  const double milliseconds = Undisturbed(1.0, [&] {
    const uint64_t before = table.lookup_nanoseconds();
    for (int slice = 0; slice < 680; ++slice) table.PriorityOf("layer1/kernel");
    return 1e-6 * static_cast<double>(table.lookup_nanoseconds() - before);
  });
  EXPECT_LT(milliseconds, 1.0);
}

TEST(MapTableTest, ReadersAndAWriter) {
  MapTable table;
  Fill(&table);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) EXPECT_EQ(table.PriorityOf("layer4/bias"), 1);
    });
  }
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(table.SetThresholds({i % 2 == 0 ? 0.5 : 0.3}).ok());
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trepak
