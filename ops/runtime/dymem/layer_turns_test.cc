#include "ops/runtime/dymem/layer_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/step_graph_testing.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Planned {
  explicit Planned(const StepGraph& graph)
      : order(ExecutionOrder(graph)),
        plan(PlanSwaps(graph, order, SwapPolicy::kDymem)),
        turns(LayerTurns(graph, order, plan)) {}

  std::vector<int> order;
  SwapPlan plan;
  std::vector<LayerTurn> turns;
};

// Who waits, and for whom.
Pairs Waiting(const StepGraph& graph) {
  const Planned planned(graph);
  Pairs named;
  for (const LayerTurn& turn : planned.turns) {
    named.emplace_back(graph.nodes[planned.plan.chain[turn.position]].name,
                       graph.nodes[planned.plan.chain[turn.after]].name);
  }
  return named;
}

TEST(LayerTurnsTest, LayersInALineNeedTurnsOnlyWhereTwoReadTheSame) {
  const TestStep step = LinearStep({LayerKind::kPooling, LayerKind::kConvolution});
  EXPECT_THAT(Waiting(step.graph()), ElementsAre(Pair("d1", "d1/filter")));
}

TEST(LayerTurnsTest, TheForwardPassOfFigure42NeedsThemBetweenBranches) {
  Pairs forward;
  for (const auto& turn : Waiting(InceptionStep(1).graph())) {
    if (turn.first[0] != 'd') {
      forward.push_back(turn);
    }
  }
  EXPECT_THAT(forward, ElementsAre(Pair("l2", "l5"), Pair("l3", "l2"), Pair("l4", "l6")));
}

// Whether one can be reached from the other by edges and turns.
bool IsOrdered(const StepGraph& graph, const Planned& planned, int from, int to, bool by_turns) {
  std::vector<bool> seen(graph.nodes.size(), false);
  std::vector<int> left = {from};
  while (!left.empty()) {
    const int node = left.back();
    left.pop_back();
    std::vector<int> next = graph.nodes[node].successors;
    for (const LayerTurn& turn : planned.turns) {
      if (by_turns && planned.plan.chain[turn.after] == node) {
        next.push_back(planned.plan.chain[turn.position]);
      }
    }
    for (const int reached : next) {
      if (reached == to) {
        return true;
      }
      if (!seen[reached]) {
        seen[reached] = true;
        left.push_back(reached);
      }
    }
  }
  return false;
}

TEST(LayerTurnsTest, EdgesAndTurnsOrderAllLayersAndNoTurnIsNeedless) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const TestStep step = RandomStep(seed);
    const Planned planned(step.graph());
    const std::vector<int>& chain = planned.plan.chain;
    for (size_t position = 1; position < chain.size(); ++position) {
      ASSERT_TRUE(IsOrdered(step.graph(), planned, chain[position - 1], chain[position], true))
          << seed << ", " << position;
    }
    for (const LayerTurn& turn : planned.turns) {
      EXPECT_EQ(turn.after, turn.position - 1);
      EXPECT_FALSE(IsOrdered(step.graph(), planned, chain[turn.after], chain[turn.position], false))
          << seed << ", " << turn.position;
    }
  }
}

TEST(LayerTurnsTest, NobodyWaitsForAMergedLayerAndItWaitsForNobody) {
  TestStep step;
  step.Add({"a", {}});
  step.Add({"merged", {"a"}, LayerKind::kOther, false});
  step.Add({"b", {"a"}, LayerKind::kOther, false});
  step.Add({"c", {"a"}});
  StepGraph graph = step.graph();
  EXPECT_THAT(Waiting(graph), ElementsAre(Pair("b", "merged"), Pair("c", "b")));
  graph.nodes[step["merged"]].is_merged = true;
  EXPECT_THAT(Waiting(graph), ElementsAre(Pair("c", "b"))) << "b waits for a, which it reads";
  const Planned planned(graph);
  EXPECT_EQ(LayerBefore(graph, planned.plan, 2), 0);
  EXPECT_EQ(LayerBefore(graph, planned.plan, 0), -1);
}

TEST(LayerTurnsTest, WhatMayNotRunOrdersNothing) {
  TestStep step;
  step.Add({"a", {}});
  step.Add({"between", {"a"}, LayerKind::kOther, false});
  step.Add({"b", {"between"}});
  StepGraph graph = step.graph();
  EXPECT_THAT(Waiting(graph), ElementsAre());
  graph.nodes[step["between"]].is_left_alone = true;
  graph.nodes[step["between"]].inputs.clear();
  EXPECT_THAT(Waiting(graph), ElementsAre(Pair("b", "a")));
}

}  // namespace
}  // namespace trepak
