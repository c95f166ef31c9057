#include "ops/runtime/dymem/execution_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/runtime/dymem/step_graph_testing.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

using Names = std::vector<std::string>;

Names OrderOf(const TestStep& step) { return step.Names(ExecutionOrder(step.graph())); }

// Where each node is; -1 if nowhere.
std::vector<int> PositionsOf(const StepGraph& graph, const std::vector<int>& order) {
  std::vector<int> positions(graph.nodes.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(positions[order[i]], -1) << "twice";
    positions[order[i]] = static_cast<int>(i);
  }
  return positions;
}

TEST(ExecutionOrderTest, LayersInALineRunInTheirOrder) {
  const TestStep step = LinearStep({LayerKind::kPooling, LayerKind::kConvolution});
  EXPECT_THAT(OrderOf(step), ElementsAre("images", "0", "1", "loss", "d1/filter", "d1", "d0"));
}

TEST(ExecutionOrderTest, NothingHasNoOrder) { EXPECT_THAT(ExecutionOrder({}), ElementsAre()); }

TEST(ExecutionOrderTest, EachBranchOfFigure42EndsBeforeTheNextBegins) {
  Names order = OrderOf(InceptionStep(1));
  const auto loss = std::find(order.begin(), order.end(), "loss");
  EXPECT_THAT(Names(order.begin(), loss), ElementsAre("images", "stem", "l0", "l1", "l5", "l2",
                                                      "l3", "l6", "l4", "l7", "l8", "l9"));
  // The branch l8, l7, l4 comes first, and what reads l4 or l0 in it is not far behind.
  EXPECT_THAT(Names(loss, order.end()),
              ElementsAre("loss", "dl9/l8", "dl8/filter", "dl8", "dl7/filter", "dl7", "dl4/filter",
                          "dl4", "dl9/l6", "dl6/filter", "dl6", "dl3/filter", "dl3", "dl9/l2",
                          "dl2/filter", "dl2", "dl9/l5", "dl5/filter", "dl5", "dl1/filter", "dl1",
                          "l0/sum", "dl0/filter", "dl0", "dstem/filter"));
}

TEST(ExecutionOrderTest, JoinComesOnItsLastVisit) {
  TestStep step;
  step.Add({"a", {}});
  step.Add({"b", {"a"}});
  step.Add({"c", {"a", "b"}});
  step.Add({"join", {"a", "b", "c"}});
  step.Add({"d", {"c"}});
  EXPECT_THAT(OrderOf(step), ElementsAre("a", "b", "c", "join", "d"));
}

TEST(ExecutionOrderTest, NodeThatWaitsTwiceForAnotherIsVisitedTwice) {
  StepGraph graph;
  graph.nodes.resize(3);
  graph.nodes[0].successors = {1, 1, 2};
  graph.nodes[1].successors = {2};
  graph.nodes[1].predecessors = 2;
  graph.nodes[2].predecessors = 2;
  EXPECT_THAT(ExecutionOrder(graph), ElementsAre(0, 1, 2));
}

TEST(ExecutionOrderTest, WeightsAndWhatIsMadeOfThemComeFirst) {
  TestStep step;
  step.Add({"images", {}});
  step.Add({"weights", {}, LayerKind::kOther, false, false, /*has_samples=*/false});
  step.Add({"layer", {"images", "weights"}});
  step.Add({"of weights", {"weights"}, LayerKind::kOther, false, false, false});
  step.Add({"next", {"of weights", "layer"}});
  step.Add({"late weights", {}, LayerKind::kOther, false, false, false});
  EXPECT_THAT(OrderOf(step),
              ElementsAre("weights", "of weights", "late weights", "images", "layer", "next"));
}

TEST(ExecutionOrderTest, SamplesThatWaitForWhatHasNoneAreHeldUntilWeightsAreDone) {
  TestStep step;
  step.Add({"iterator", {}, LayerKind::kOther, false, false, false});
  step.Add({"images", {"iterator"}});
  step.Add({"layer", {"images"}});
  step.Add({"weights", {}, LayerKind::kOther, false, false, false});
  EXPECT_THAT(OrderOf(step), ElementsAre("iterator", "weights", "images", "layer"));
}

TEST(ExecutionOrderTest, ReadersThatMakeNoFeatureMapComeFirst) {
  TestStep step;
  step.Add({"a", {}});
  step.Add({"makes", {"a"}});
  step.Add({"makes too", {"a"}});
  step.Add({"reads", {"a"}, LayerKind::kOther, false});
  step.Add({"reads too", {"a"}, LayerKind::kOther, false});
  step.Add({"after reads", {"reads"}, LayerKind::kOther, false});
  EXPECT_THAT(OrderOf(step),
              ElementsAre("a", "reads", "after reads", "reads too", "makes", "makes too"));
}

// Of shuffled numbers, with edges that repeat.
StepGraph RandomGraph(unsigned seed) {
  std::mt19937 random(seed);
  StepGraph graph;
  const size_t count = 1 + random() % 60;
  graph.nodes.resize(count);
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (size_t i = 0; i < count; ++i) {
    StepNode& node = graph.nodes[numbers[i]];
    node.has_samples |= random() % 10 == 0;
    if (random() % 2 == 0) {
      node.outputs = {static_cast<int>(graph.tensors.size())};
      graph.tensors.push_back({numbers[i], 0, 1, {}, random() % 2 == 0});
    }
    for (size_t edge = 0; i + 1 < count && edge < random() % 5; ++edge) {
      const int next = numbers[i + 1 + random() % (count - i - 1)];
      node.successors.push_back(next);
      ++graph.nodes[next].predecessors;
      graph.nodes[next].has_samples |= node.has_samples;
    }
  }
  return graph;
}

void ExpectAfterAllItWaitsFor(const StepGraph& graph, const std::vector<int>& positions) {
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    for (const int next : graph.nodes[node].successors) {
      ASSERT_LT(positions[node], positions[next]);
    }
  }
}

TEST(ExecutionOrderTest, RandomGraphsAreOrderedWhole) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const StepGraph graph = RandomGraph(seed);
    const std::vector<int> order = ExecutionOrder(graph);
    ASSERT_EQ(order.size(), graph.nodes.size()) << seed;
    ExpectAfterAllItWaitsFor(graph, PositionsOf(graph, order));
    EXPECT_TRUE(std::is_partitioned(order.begin(), order.end(), [&](int node) {
      return !graph.nodes[node].has_samples;
    })) << seed;
  }
}

TEST(ExecutionOrderTest, RandomStepsAreOrderedWhole) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const TestStep step = RandomStep(seed);
    const std::vector<int> order = ExecutionOrder(step.graph());
    ASSERT_EQ(order.size(), step.graph().nodes.size()) << seed;
    ExpectAfterAllItWaitsFor(step.graph(), PositionsOf(step.graph(), order));
  }
}

TEST(ExecutionOrderTest, CirclesAndWhatIsBehindThemAreLeftOut) {
  StepGraph graph;
  graph.nodes.resize(7);
  const auto connect = [&](int from, int to) {
    graph.nodes[from].successors.push_back(to);
    ++graph.nodes[to].predecessors;
  };
  connect(0, 1);
  connect(1, 2);
  connect(2, 3);
  connect(3, 1);  // the circle 1, 2, 3
  connect(3, 4);  // behind it
  connect(0, 5);
  connect(6, 6);
  EXPECT_THAT(ExecutionOrder(graph), ElementsAre(0, 5));
}

TEST(ExecutionOrderTest, RandomGraphsWithCirclesEnd) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    StepGraph graph = RandomGraph(seed);
    const std::vector<int> whole = ExecutionOrder(graph);
    std::mt19937 random(seed);
    const size_t at = random() % whole.size();
    const int late = whole[at + random() % (whole.size() - at)];
    if (graph.nodes[late].has_samples && !graph.nodes[whole[at]].has_samples) {
      continue;  // what waits for samples has them
    }
    graph.nodes[late].successors.push_back(whole[at]);  // a circle only if one leads to the other
    ++graph.nodes[whole[at]].predecessors;
    const std::vector<int> order = ExecutionOrder(graph);
    const std::vector<int> positions = PositionsOf(graph, order);
    EXPECT_THAT(whole, IsSupersetOf(order));
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      for (const int next : graph.nodes[node].successors) {
        EXPECT_TRUE(positions[next] < 0 || positions[node] >= 0) << seed;
        EXPECT_TRUE(positions[next] < 0 || positions[node] < positions[next]) << seed;
      }
    }
  }
}

TEST(ExecutionOrderTest, DepthIsNotLimitedByTheStack) {
  TestStep step;
  step.Add({"0", {}});
  for (int i = 1; i < 100000; ++i) {
    step.Add({std::to_string(i), {std::to_string(i - 1)}});
  }
  const std::vector<int> order = ExecutionOrder(step.graph());
  EXPECT_EQ(order.size(), 100000U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace trepak
