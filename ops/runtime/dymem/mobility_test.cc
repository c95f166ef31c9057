#include "ops/runtime/dymem/mobility.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/step_graph_testing.h"

namespace trepak {

inline bool operator==(const TensorGroup& a, const TensorGroup& b) {
  return a.mobility == b.mobility && a.references == b.references;
}
inline void PrintTo(const TensorGroup& group, std::ostream* out) {
  static const char* const kNames[] = {"movable", "temporary", "reclaimed"};
  *out << kNames[static_cast<int>(group.mobility)] << " " << group.references;
}

namespace {

constexpr TensorGroup kMovable{Mobility::kMovable, 1};
constexpr TensorGroup kTemporary{Mobility::kTemporary, 1};
constexpr TensorGroup kReclaimed{Mobility::kReclaimed, 1};

class Groups {
 public:
  explicit Groups(const TestStep& step, SwapPolicy policy = SwapPolicy::kDymem)
      : step_(step),
        groups_(GroupByMobility(step.graph(),
                                PlanSwaps(step.graph(), ExecutionOrder(step.graph()), policy))) {
    EXPECT_EQ(groups_.size(), step.graph().tensors.size());
  }
  const TensorGroup& operator[](const std::string& name) const { return groups_[step_[name]]; }

 private:
  const TestStep& step_;
  std::vector<TensorGroup> groups_;
};

TEST(MobilityTest, ForkOfFigure42IsTemporary) {
  const TestStep step = InceptionStep(1);
  const Groups groups(step);
  EXPECT_EQ(groups["l0"], (TensorGroup{Mobility::kTemporary, 4}));
}

TEST(MobilityTest, EndsOfBranchesWaitInTheForwardPassOnly) {
  const TestStep step = InceptionStep(1);
  const Groups groups(step);
  for (const std::string end : {"l5", "l2", "l6"}) {
    EXPECT_EQ(groups[end], kTemporary) << end;
    EXPECT_EQ(groups["dl9/" + end], kMovable) << end;
  }
  EXPECT_EQ(groups["l8"], kMovable) << "the join is next";
  EXPECT_EQ(groups["dl9/l8"], kMovable);
  EXPECT_EQ(groups["loss"], (TensorGroup{Mobility::kTemporary, 4})) << "a fork";
  // The gradients of the fork's branches wait for their sum, but for the last.
  for (const std::string begin : {"dl4", "dl3", "dl2"}) {
    EXPECT_EQ(groups[begin], kTemporary) << begin;
  }
  EXPECT_EQ(groups["dl1"], kMovable);
}

TEST(MobilityTest, WhatTheNextLayerReadsIsMovable) {
  const TestStep block = InceptionStep(1);
  const Groups in_branches(block);
  for (const std::string name :
       {"images", "stem", "l1", "l3", "l4", "l7", "dl8", "dl7", "dl6", "dl5", "dl0"}) {
    EXPECT_EQ(in_branches[name], kMovable) << name;
  }
  const TestStep line = LinearStep(std::vector<LayerKind>(4, LayerKind::kPooling));
  const Groups in_line(line);
  for (const std::string name : {"images", "0", "1", "2", "loss", "d3", "d2", "d1"}) {
    EXPECT_EQ(in_line[name], kMovable) << name;
  }
}

TEST(MobilityTest, ResidualBlockHasAForkAndOneThatWaits) {
  const TestStep step = ResidualStep(2);
  const Groups groups(step);
  EXPECT_EQ(groups["0/a2"], (TensorGroup{Mobility::kTemporary, 2}));
  EXPECT_EQ(groups["1/c1"], kMovable);
  EXPECT_EQ(groups["1/a1"], kMovable);
  EXPECT_EQ(groups["1/c2"], kTemporary);
  EXPECT_EQ(groups["1/beside"], kMovable);
  EXPECT_EQ(groups["1/add"], kMovable);
}

TEST(MobilityTest, FullyConnectedSoftmaxAndDropoutAreReclaimed) {
  for (const LayerKind kind :
       {LayerKind::kFullyConnected, LayerKind::kSoftmax, LayerKind::kDropout}) {
    const TestStep step = LinearStep({LayerKind::kPooling, kind, LayerKind::kPooling});
    const Groups groups(step);
    EXPECT_EQ(groups["1"], kReclaimed);
    EXPECT_EQ(groups["d1"], kReclaimed) << "their gradients too";
    EXPECT_EQ(groups["0"], kReclaimed) << "what they read stays for the backward pass";
    EXPECT_EQ(groups["images"], kMovable);
    EXPECT_EQ(groups["d2"], kMovable);
  }
}

TEST(MobilityTest, WhatStaysForTheBackwardPassIsReclaimed) {
  const TestStep step = InceptionStep(1);
  const Groups none(step, SwapPolicy::kNone);
  for (const std::string name : {"images", "stem", "l0", "l1", "l3", "l4", "l7", "l9"}) {
    EXPECT_EQ(none[name], kReclaimed) << name;
  }
  EXPECT_EQ(none["l5"], kTemporary) << "no backward layer reads it";
  EXPECT_EQ(none["l8"], kMovable);
  EXPECT_EQ(none["dl8"], kMovable);
  const TestStep line = LinearStep({LayerKind::kPooling, LayerKind::kConvolution});
  const Groups some(line, SwapPolicy::kSuperNeurons);
  EXPECT_EQ(some["0"], kMovable);
  EXPECT_EQ(some["images"], kReclaimed) << "pooling's input is not offloaded";
  EXPECT_EQ(some["1"], kReclaimed) << "only the backward pass reads it";
}

TEST(MobilityTest, WhatIsNoFeatureMapIsReclaimed) {
  TestStep step;
  step.Add({"weights", {}, LayerKind::kOther, false, false, false});
  step.Add({"images", {}});
  step.Add({"a", {"images", "weights"}, LayerKind::kConvolution});
  step.Add({"b", {"a"}, LayerKind::kPooling});
  const Groups groups(step);
  EXPECT_EQ(groups["weights"], kReclaimed);
  EXPECT_EQ(groups["a"], kMovable);
  EXPECT_EQ(groups["b"], kMovable) << "nobody reads it";
}

// As TensorFlow has it: several nodes.
void AddNormalization(TestStep* step, const std::string& input) {
  step->Add({"mean", {input}, LayerKind::kNormalization, false});
  step->Add({"difference", {input, "mean"}, LayerKind::kNormalization});
  step->Add({"variance", {"difference"}, LayerKind::kNormalization, false});
  step->Add({"normalized", {input, "mean", "variance"}, LayerKind::kNormalization});
}

TEST(MobilityTest, NodesWhoseResultsEndInSmallTensorsAreNoReaders) {
  TestStep step;
  step.Add({"images", {}});
  step.Add({"a", {"images"}, LayerKind::kConvolution});
  AddNormalization(&step, "a");
  step.Add({"b", {"normalized"}, LayerKind::kActivation});
  step.Add({"c", {"b"}, LayerKind::kConvolution});
  step.Add({"db", {"c", "b"}, LayerKind::kConvolution, true, true});
  step.Add({"da", {"db", "a"}, LayerKind::kConvolution, true, true});
  const Groups groups(step);
  EXPECT_EQ(groups["a"], kMovable) << "the mean and the variance are of the layer that is next";
  EXPECT_EQ(groups["difference"], kMovable) << "no layer reads it";
  EXPECT_EQ(groups["mean"], kReclaimed);
  EXPECT_EQ(groups["normalized"], kMovable);
  EXPECT_EQ(groups["b"], kMovable);
}

TEST(MobilityTest, ForkToANormalizationCountsItOnce) {
  TestStep step;
  step.Add({"images", {}});
  step.Add({"a", {"images"}, LayerKind::kConvolution});
  AddNormalization(&step, "a");
  step.Add({"beside", {"a"}, LayerKind::kConvolution});
  step.Add({"join", {"normalized", "beside"}, LayerKind::kJoin});
  step.Add({"next", {"join"}, LayerKind::kActivation});
  const Groups groups(step);
  EXPECT_EQ(groups["a"], (TensorGroup{Mobility::kTemporary, 2}));
  EXPECT_EQ(groups["normalized"], kTemporary);
  EXPECT_EQ(groups["beside"], kMovable);
}

TEST(MobilityTest, RandomStepsFollowAlgorithm4) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const TestStep step = RandomStep(seed);
    const StepGraph& graph = step.graph();
    const Groups groups(step);
    for (size_t number = 0; number < graph.tensors.size(); ++number) {
      const StepTensor& tensor = graph.tensors[number];
      const TensorGroup& group = groups[graph.nodes[number].name];
      const bool is_backward = graph.nodes[number].is_backward;
      const auto forks =
          std::count_if(tensor.consumers.begin(), tensor.consumers.end(), [&](int node) {
            return graph.nodes[node].is_backward == is_backward && graph.Makes(node);
          });
      EXPECT_GE(group.references, 1);
      if (!tensor.is_feature_map || IsReclaimed(graph.nodes[number].kind)) {
        EXPECT_EQ(group, kReclaimed);
      } else if (group.mobility == Mobility::kMovable) {
        EXPECT_EQ(group.references, 1);
      } else if (group.mobility == Mobility::kTemporary) {
        EXPECT_LE(group.references, forks);
      }
    }
  }
}

}  // namespace
}  // namespace trepak
