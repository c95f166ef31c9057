#include "ops/runtime/dymem/swap_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/step_graph_testing.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

using Names = std::vector<std::string>;

SwapPlan PlanOf(const TestStep& step, SwapPolicy policy = SwapPolicy::kDymem) {
  return PlanSwaps(step.graph(), ExecutionOrder(step.graph()), policy);
}

Names Swapped(const TestStep& step, SwapPolicy policy) {
  std::vector<int> tensors;
  for (const Swap& swap : PlanOf(step, policy).swaps) {
    tensors.push_back(swap.tensor);
  }
  return step.Names(tensors);
}

int PositionOf(const SwapPlan& plan, int node) {
  const auto found = std::find(plan.chain.begin(), plan.chain.end(), node);
  EXPECT_NE(found, plan.chain.end()) << node;
  return static_cast<int>(found - plan.chain.begin());
}

int LastRead(const SwapPlan& plan, const Swap& swap) {
  int last = 0;
  for (const int node : swap.readers) {
    last = std::max(last, PositionOf(plan, node));
  }
  return last;
}

// One layer of each kind, in a line: "2" is read by the third one after it, and so on.
TestStep EachKind() {
  return LinearStep({LayerKind::kConvolution, LayerKind::kNormalization, LayerKind::kActivation,
                     LayerKind::kPooling, LayerKind::kFullyConnected, LayerKind::kDropout,
                     LayerKind::kConvolution, LayerKind::kOther, LayerKind::kSoftmax});
}

TEST(SwapPlanTest, WhatStaysNeverLeaves) {
  const TestStep step = EachKind();
  StepGraph graph = step.graph();
  graph.tensors[step["5"]].stays = true;
  for (const SwapPolicy policy :
       {SwapPolicy::kVdnn, SwapPolicy::kSuperNeurons, SwapPolicy::kDymem}) {
    for (const Swap& swap : PlanSwaps(graph, ExecutionOrder(graph), policy).swaps) {
      EXPECT_NE(swap.tensor, step["5"]);
    }
    EXPECT_EQ(PlanSwaps(graph, ExecutionOrder(graph), policy).swaps.size() + 1,
              PlanOf(step, policy).swaps.size());
  }
}

TEST(SwapPlanTest, PolicyDecidesWhoseInputsLeave) {
  const TestStep step = EachKind();
  EXPECT_THAT(Swapped(step, SwapPolicy::kNone), ElementsAre());
  EXPECT_THAT(Swapped(step, SwapPolicy::kSuperNeurons), ElementsAre("5", "images"));
  // "3" is read by the fully connected layer, "4" by dropout, "7" by softmax.
  EXPECT_THAT(Swapped(step, SwapPolicy::kDymem), ElementsAre("6", "5", "2", "1", "0", "images"));
  EXPECT_EQ(Swapped(step, SwapPolicy::kVdnn), Swapped(step, SwapPolicy::kDymem));
  EXPECT_TRUE(PlanOf(step, SwapPolicy::kVdnn).waits_each_layer);
  EXPECT_FALSE(PlanOf(step, SwapPolicy::kDymem).waits_each_layer);
  EXPECT_FALSE(PlanOf(step, SwapPolicy::kSuperNeurons).waits_each_layer);
}

TEST(SwapPlanTest, VdnnFetchesOneLayerAhead) {
  for (const TestStep& step : {EachKind(), InceptionStep(2), ResidualStep(2), RandomStep(1)}) {
    const SwapPlan plan = PlanOf(step, SwapPolicy::kVdnn);
    ASSERT_FALSE(plan.swaps.empty());
    for (const Swap& swap : plan.swaps) {
      EXPECT_EQ(swap.fetch_at, std::max(plan.first_backward, swap.needed_at - 1));
    }
  }
}

TEST(SwapPlanTest, OneReaderThatOffloadsIsEnough) {
  TestStep step;
  step.Layer("images", LayerKind::kOther, {});
  step.Layer("a", LayerKind::kActivation, {"images"});
  step.Layer("fc", LayerKind::kFullyConnected, {"a"});
  step.Layer("pool", LayerKind::kPooling, {"a"});
  step.Layer("join", LayerKind::kJoin, {"fc", "pool"});
  step.AddBackward();
  EXPECT_THAT(Swapped(step, SwapPolicy::kDymem), ElementsAre("a", "images"));
  EXPECT_THAT(Swapped(step, SwapPolicy::kSuperNeurons), ElementsAre());
}

TEST(SwapPlanTest, OnlyForwardFeatureMapsThatBothPassesReadLeave) {
  TestStep step;
  step.Add({"images", {}});
  step.Add({"weights", {}, LayerKind::kOther, false, false, false});
  step.Add({"a", {"images", "weights"}, LayerKind::kConvolution});  // read by both passes
  step.Add({"b", {"a"}, LayerKind::kConvolution});                  // by the backward pass only
  step.Add({"c", {"a"}, LayerKind::kConvolution});                  // by the forward pass only
  step.Add({"d", {"c"}, LayerKind::kConvolution, false});           // small
  step.Add({"db", {"a", "b"}, LayerKind::kConvolution, true, true});
  step.Add({"da", {"db", "weights", "d"}, LayerKind::kConvolution, true, true});
  EXPECT_THAT(Swapped(step, SwapPolicy::kDymem), ElementsAre("a"));
}

TEST(SwapPlanTest, ChainIsTheForwardPassAndThenTheBackwardPass) {
  TestStep step;
  step.Add({"weights", {}, LayerKind::kOther, false, false, false});
  step.Add({"images", {}});
  step.Add({"a", {"images", "weights"}, LayerKind::kConvolution});
  step.Add({"early", {"a"}, LayerKind::kOther, false, /*is_backward=*/true});
  step.Add({"mean", {"a"}, LayerKind::kOther, false});
  step.Add({"of small", {"mean"}, LayerKind::kOther, false});  // touches no feature map
  step.Add({"b", {"a", "mean"}, LayerKind::kConvolution});
  step.Add({"db", {"b", "a"}, LayerKind::kConvolution, true, true});
  const SwapPlan plan = PlanOf(step);
  EXPECT_THAT(step.Names(plan.chain), ElementsAre("images", "a", "mean", "b", "early", "db"));
  EXPECT_EQ(plan.first_backward, 4);
  ASSERT_EQ(plan.swaps.size(), 1U);
  EXPECT_EQ(plan.swaps[0].leaves, 2) << "with the first that reads it, which is the mean";
  EXPECT_EQ(plan.swaps[0].needed_at, 4);
  EXPECT_THAT(step.Names(plan.swaps[0].readers), UnorderedElementsAre("early", "db"));
}

TEST(SwapPlanTest, TensorsWithReadersOnACircleStay) {
  TestStep step = LinearStep({LayerKind::kConvolution, LayerKind::kConvolution});
  StepGraph graph = step.graph();
  graph.nodes[step["d1/filter"]].successors.push_back(step["d1/filter"]);
  ++graph.nodes[step["d1/filter"]].predecessors;
  const SwapPlan plan = PlanSwaps(graph, ExecutionOrder(graph), SwapPolicy::kDymem);
  ASSERT_EQ(plan.swaps.size(), 1U);
  EXPECT_EQ(plan.swaps[0].tensor, step["images"]);
}

// When the prefetch may begin, if at most `left` inputs of convolutions among the first `earlier`
// swaps are still to be read.
int WhenFewAreLeft(const SwapPlan& plan, size_t earlier, size_t left) {
  std::vector<int> last_reads;
  for (size_t i = 0; i < earlier; ++i) {
    if (plan.swaps[i].of_convolution) {
      last_reads.push_back(LastRead(plan, plan.swaps[i]));
    }
  }
  std::sort(last_reads.begin(), last_reads.end(), std::greater<>());
  return last_reads.size() <= left ? plan.first_backward : last_reads[left] + 1;
}

// Goes through the backward pass. Returns the most inputs of convolutions in memory at once.
int ExpectAlgorithm3(const TestStep& step, const SwapPlan& plan) {
  int queued = plan.first_backward;
  for (size_t i = 0; i < plan.swaps.size(); ++i) {
    const Swap& swap = plan.swaps[i];
    EXPECT_LT(swap.leaves, plan.first_backward);
    EXPECT_GE(swap.fetch_at, queued) << "overtakes";
    EXPECT_LE(swap.fetch_at, swap.needed_at);
    EXPECT_TRUE(i == 0 || plan.swaps[i - 1].needed_at <= swap.needed_at);
    // As early as the queue and the limit allow.
    const int allowed = std::max(queued, WhenFewAreLeft(plan, i, swap.of_convolution ? 1 : 2));
    EXPECT_EQ(swap.fetch_at, std::min(allowed, swap.needed_at)) << step.Names({swap.tensor})[0];
    queued = swap.fetch_at;
  }
  size_t most = 0;
  for (int running = plan.first_backward; running < static_cast<int>(plan.chain.size());
       ++running) {
    size_t resident = 0;
    bool is_ahead = false;
    for (const Swap& swap : plan.swaps) {
      if (swap.of_convolution && swap.fetch_at <= running && running <= LastRead(plan, swap)) {
        ++resident;
        is_ahead |= swap.needed_at > running;
      }
    }
    most = std::max(most, resident);
    // More than two only if that many are between their first and last readers.
    EXPECT_TRUE(resident <= 2 || !is_ahead) << running << ": " << resident;
  }
  return static_cast<int>(most);
}

TEST(SwapPlanTest, TwoConvolutionsInputsAreInMemoryInALine) {
  const TestStep step = LinearStep(std::vector<LayerKind>(10, LayerKind::kConvolution));
  const SwapPlan plan = PlanOf(step);
  EXPECT_EQ(plan.swaps.size(), 10U);
  EXPECT_EQ(ExpectAlgorithm3(step, plan), 2);
  // The inputs of the last two come at once; each other one when that of the next layer but one
  // was read.
  EXPECT_EQ(plan.swaps[1].fetch_at, plan.first_backward);
  for (size_t i = 2; i < plan.swaps.size(); ++i) {
    EXPECT_EQ(plan.swaps[i].fetch_at, plan.swaps[i - 2].needed_at + 1);
  }
}

TEST(SwapPlanTest, OtherLayersInputsAreQueuedUpToTheNextConvolutionBeyond) {
  const LayerKind c = LayerKind::kConvolution;
  const LayerKind p = LayerKind::kPooling;
  const TestStep step = LinearStep({p, c, p, p, c, p, p, c, p, c, p});
  const SwapPlan plan = PlanOf(step);
  ExpectAlgorithm3(step, plan);
  std::vector<int> at_once;
  for (const Swap& swap : plan.swaps) {
    if (swap.fetch_at == plan.first_backward) {
      at_once.push_back(swap.tensor);
    }
  }
  // Inputs of: pooling, convolution, pooling, convolution, pooling, pooling.
  EXPECT_THAT(step.Names(at_once), ElementsAre("9", "8", "7", "6", "5", "4"));
  const auto& third = plan.swaps[6];
  EXPECT_EQ(step.Names({third.tensor})[0], "3");
  EXPECT_EQ(third.fetch_at, PositionOf(plan, step["d9/filter"]) + 1);
  EXPECT_EQ(plan.swaps[7].fetch_at, third.fetch_at) << "what is behind it comes with it";
  EXPECT_EQ(plan.swaps[8].fetch_at, third.fetch_at);
  EXPECT_GT(plan.swaps[9].fetch_at, third.fetch_at);
}

TEST(SwapPlanTest, TwoConvolutionsInputsAreInMemoryInBlocks) {
  for (const int blocks : {1, 2, 5}) {
    for (const TestStep& step : {InceptionStep(blocks), ResidualStep(blocks)}) {
      EXPECT_EQ(ExpectAlgorithm3(step, PlanOf(step)), 2);
      EXPECT_EQ(ExpectAlgorithm3(step, PlanOf(step, SwapPolicy::kSuperNeurons)), 2);
    }
  }
}

TEST(SwapPlanTest, InputOfAForkStaysWhileTheBranchesInputsComeAndGo) {
  // The backward pass reads "x" first, and again after each branch.
  TestStep step;
  step.Layer("images", LayerKind::kOther, {});
  step.Convolution("x", "images");
  Names ends;
  for (const std::string branch : {"a", "b", "c", "d"}) {
    step.Convolution(branch + "1", "x");
    step.Convolution(branch + "2", branch + "1");
    ends.push_back(branch + "2");
  }
  step.Convolution("e", "x");
  ends.push_back("e");
  step.Layer("join", LayerKind::kJoin, ends);
  step.AddBackward();
  EXPECT_EQ(ExpectAlgorithm3(step, PlanOf(step)), 2);
}

TEST(SwapPlanTest, RandomStepsFollowTheAlgorithm) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const TestStep step = RandomStep(seed);
    for (const SwapPolicy policy : {SwapPolicy::kDymem, SwapPolicy::kSuperNeurons}) {
      ExpectAlgorithm3(step, PlanOf(step, policy));
    }
    if (testing::Test::HasFailure()) {
      break;
    }
  }
}

TEST(SwapPlanTest, SwapsHaveAllTheirReaders) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const TestStep step = RandomStep(seed);
    const StepGraph& graph = step.graph();
    const SwapPlan plan = PlanOf(step);
    for (const Swap& swap : plan.swaps) {
      std::vector<int> readers;
      int first = static_cast<int>(plan.chain.size());
      int leaves = first;
      for (const int node : graph.tensors[swap.tensor].consumers) {
        const int position = PositionOf(plan, node);
        if (graph.nodes[node].is_backward) {
          readers.push_back(node);
        }
        int& earliest = graph.nodes[node].is_backward ? first : leaves;
        earliest = std::min(earliest, position);
      }
      EXPECT_EQ(swap.readers, readers);
      EXPECT_EQ(swap.needed_at, first);
      EXPECT_EQ(swap.leaves, leaves);
    }
  }
}

}  // namespace
}  // namespace trepak
