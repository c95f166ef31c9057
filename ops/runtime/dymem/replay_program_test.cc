#include "ops/runtime/dymem/replay_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/runtime/dymem/mobility.h"
#include "ops/runtime/dymem/replay_testing.h"

namespace trepak {
namespace {

using testing::ElementsAre;

const ReplayMachine kMachine = {1, 1, 1};

// Of each layer: what it takes and frees when it begins, a bar, and when it ends.
std::vector<std::string> Told(const ReplayProgram& program, const AllocationTrace& trace) {
  std::vector<std::string> told;
  for (const ReplayProgram::Layer& layer : program.layers) {
    std::string line;
    for (size_t at = 0; at <= layer.events.size(); ++at) {
      line += at == layer.at_begin ? "|" : "";
      if (at < layer.events.size()) {
        const AllocationTrace::Block& block = trace.blocks[layer.events[at].block];
        line += (layer.events[at].is_free ? "-" : "+") + block.node + (block.is_scratch ? "'" : "");
      }
    }
    told.push_back(line);
  }
  return told;
}

// Writes a trace down.
class Trace {
 public:
  int Take(const std::string& node, size_t bytes = 8 * kKilo, bool is_scratch = false) {
    trace.blocks.push_back({node, bytes, is_scratch, {}});
    trace.events.push_back({static_cast<int>(trace.blocks.size()) - 1, false});
    return trace.events.back().block;
  }
  void Free(int block) { trace.events.push_back({block, true}); }

  AllocationTrace trace;
};

TEST(ReplayProgramTest, ALayerTakesTheLongerOfItsArithmeticAndItsMemory) {
  const TestStep step = LinearStep({LayerKind::kConvolution});
  std::vector<NodeWork> work(step.graph().nodes.size());
  work[step["0"]] = {100, 10, 40, 3};
  work[step["loss"]] = {100, 10, 40, 2};
  const auto seconds = [&](int64_t batch) {
    AllocationTrace trace;
    trace.batch = batch;
    const ReplayProgram program =
        MakeReplayProgram(step.graph(), work, trace, SwapPolicy::kNone, {10, 2, 1});
    EXPECT_EQ(program.first_backward, 2);
    return std::vector<double>{program.layers[1].seconds, program.layers[2].seconds};
  };
  EXPECT_THAT(seconds(4), ElementsAre(26, 24));
  EXPECT_THAT(seconds(0), ElementsAre(20, 20));
  work[step["loss"]] = {1000, 10, 40, 2};
  EXPECT_THAT(seconds(4), ElementsAre(26, 104));
}

TEST(ReplayProgramTest, AllocationsTellWhichLayerIsAtWork) {
  // The chain is: images, 0, 1, loss, d1, d0/filter; "1" and "d1" work in place.
  const TestStep step = LinearStep({LayerKind::kConvolution, LayerKind::kActivation});
  Trace written;
  const int images = written.Take("images");
  const int scratch = written.Take("0", 8 * kKilo, true);
  const int convolution = written.Take("0");
  written.Free(scratch);
  const int unknown = written.Take("beside");  // while "0" is at work
  written.Free(unknown);
  const int loss = written.Take("loss");
  written.Free(convolution);
  const int filter = written.Take("d0/filter");
  written.Free(images);
  written.Free(loss);
  written.Free(filter);
  const auto work = WorkOf(step, [](const std::string&) { return 1.0; });
  const ReplayProgram program =
      MakeReplayProgram(step.graph(), work, written.trace, SwapPolicy::kNone, kMachine);
  EXPECT_THAT(Told(program, written.trace),
              ElementsAre("+images|",                 //
                          "+0'+0-0'+beside|-beside",  //
                          "|",                        //
                          "+loss|",                   //
                          "|-0",                      // "d1" is its last reader
                          "+d0/filter|-images-loss-d0/filter"));
}

TEST(ReplayProgramTest, ScratchGoesWithItsOwnLayer) {
  const TestStep step = LinearStep({LayerKind::kConvolution, LayerKind::kActivation});
  Trace written;
  written.Take("images");
  const int scratch = written.Take("0", 8 * kKilo, true);
  written.Take("0");
  written.Free(scratch);
  written.Take("loss");
  const auto work = WorkOf(step, [](const std::string&) { return 1.0; });
  const ReplayProgram program =
      MakeReplayProgram(step.graph(), work, written.trace, SwapPolicy::kNone, kMachine);
  EXPECT_THAT(Told(program, written.trace),
              ElementsAre("+images|", "+0'+0|-0'", "|", "+loss|", "|", "|"));
}

TEST(ReplayProgramTest, RandomStepsKeepTheirEvents) {
  for (unsigned seed = 0; seed < kRandomCases; ++seed) {
    const RandomCase random(seed);
    const ReplayProgram program = random.Program(SwapPolicy::kDymem);
    EXPECT_EQ(program.before, random.trace.before);
    size_t next = 0;
    for (const ReplayProgram::Layer& layer : program.layers) {
      for (size_t at = 0; at < layer.events.size(); ++at, ++next) {
        ASSERT_EQ(layer.events[at].block, random.trace.events[next].block);
        ASSERT_EQ(layer.events[at].is_free, random.trace.events[next].is_free);
        ASSERT_TRUE(layer.events[at].is_free || at < layer.at_begin);
      }
    }
    ASSERT_EQ(next, random.trace.events.size());
  }
}

TEST(ReplayProgramTest, BlocksArePlacedByTheGroupOfTheirNode) {
  for (unsigned seed = 0; seed < kRandomCases; ++seed) {
    const RandomCase random(seed);
    const StepGraph& graph = random.step.graph();
    for (const SwapPolicy policy : kPolicies) {
      const ReplayProgram program = random.Program(policy);
      const auto groups = GroupByMobility(graph, PlanOf(random.step, policy));
      ASSERT_EQ(program.requests.size(), random.trace.blocks.size());
      for (size_t block = 0; block < program.requests.size(); ++block) {
        const AllocationTrace::Block& of = random.trace.blocks[block];
        const bool is_known = !of.node.empty() && graph.Makes(random.step[of.node]);
        const TensorGroup group = is_known ? groups[random.step[of.node]] : TensorGroup();
        ASSERT_EQ(program.requests[block].bytes, of.bytes);
        ASSERT_EQ(program.requests[block].mobility, group.mobility);
        ASSERT_EQ(program.requests[block].references, group.references);
      }
    }
  }
}

TEST(ReplayProgramTest, CopiesAreThePlansSwaps) {
  for (unsigned seed = 0; seed < kRandomCases; ++seed) {
    const RandomCase random(seed);
    const StepGraph& graph = random.step.graph();
    for (const SwapPolicy policy : kPolicies) {
      const SwapPlan plan = PlanOf(random.step, policy);
      const ReplayProgram program = random.Program(policy);
      const auto at = [&](int node) {
        return std::find(plan.chain.begin(), plan.chain.end(), node) - plan.chain.begin();
      };
      ASSERT_EQ(program.waits_each_layer, policy == SwapPolicy::kVdnn);
      ASSERT_EQ(program.copies.size(), plan.swaps.size());
      for (size_t number = 0; number < plan.swaps.size(); ++number) {
        const Swap& swap = plan.swaps[number];
        const ReplayProgram::Copy& copy = program.copies[number];
        ASSERT_EQ(random.trace.blocks[copy.block].node, graph.nodes[swap.tensor].name);
        ASSERT_EQ(program.copy_of[copy.block], static_cast<int>(number));
        ASSERT_EQ(copy.fetch_at, swap.fetch_at);
        ASSERT_EQ(copy.needed_at, swap.needed_at);
        ASSERT_NEAR(copy.seconds, static_cast<double>(copy.bytes) / random.link, kClose);
        ASSERT_EQ(copy.leaves_after,
                  policy == SwapPolicy::kVdnn ? swap.leaves - 1 : at(swap.tensor));
        for (const int reader : graph.tensors[swap.tensor].consumers) {
          ASSERT_TRUE(graph.nodes[reader].is_backward || at(reader) <= copy.last_read);
        }
        ASSERT_LT(copy.last_read, program.first_backward);
      }
    }
  }
}

TEST(ReplayProgramTest, InVdnnATensorLeavesBesideItsFirstReader) {
  // "product" reads "a" after "b" has run, and both again in the backward pass.
  TestStep step;
  step.Layer("images", LayerKind::kOther, {});
  step.Convolution("a", "images");
  step.Convolution("b", "images");
  step.Layer("product", LayerKind::kOther, {"a", "b"});
  step.Add({"loss", {"product"}, LayerKind::kOther, true, true});
  step.Add({"da", {"loss", "b"}, LayerKind::kOther, true, true});
  step.Add({"db", {"loss", "a"}, LayerKind::kOther, true, true});
  const auto trace = TraceOf(step, [](const std::string&) { return 8 * kKilo; });
  const auto work = WorkOf(step, [](const std::string&) { return 1.0; });
  const auto leaves_after = [&](SwapPolicy policy) {
    std::vector<int> after;
    for (const auto& copy : MakeReplayProgram(step.graph(), work, trace, policy, kMachine).copies) {
      after.push_back(copy.leaves_after);
    }
    return after;
  };
  EXPECT_THAT(leaves_after(SwapPolicy::kDymem), ElementsAre(2, 1));  // "b", "a"
  EXPECT_THAT(leaves_after(SwapPolicy::kVdnn), ElementsAre(2, 2));
}

TEST(ReplayProgramTest, MemoryThatTensorsShareLeavesOnce) {
  // Both "images" and "0" leave, and "0" is the images in another shape.
  const TestStep step = LinearStep({LayerKind::kConvolution, LayerKind::kActivation});
  Trace written;
  const int shared = written.Take("images");
  written.trace.blocks[shared].swapped = {"images/trepak_0", "0/trepak_0"};
  const auto work = WorkOf(step, [](const std::string&) { return 1.0; });
  const ReplayProgram program =
      MakeReplayProgram(step.graph(), work, written.trace, SwapPolicy::kDymem, kMachine);
  ASSERT_EQ(program.copies.size(), 1U);
  EXPECT_EQ(program.copies[0].leaves_after, 1);
  EXPECT_EQ(program.copies[0].last_read, 2) << "by the activation";
  EXPECT_EQ(program.copies[0].needed_at, 4);
}

TEST(ReplayProgramTest, WhatIsNotThePoolsStays) {
  const TestStep step = LinearStep({LayerKind::kConvolution, LayerKind::kActivation});
  Trace written;
  const int convolution = written.Take("0");
  written.trace.blocks[convolution].swapped = {"0/trepak_0"};
  const auto work = WorkOf(step, [](const std::string&) { return 1.0; });
  const ReplayProgram program =
      MakeReplayProgram(step.graph(), work, written.trace, SwapPolicy::kDymem, kMachine);
  ASSERT_EQ(program.copies.size(), 1U);
  EXPECT_EQ(program.copies[0].block, convolution);
}

}  // namespace
}  // namespace trepak
