// Puts Dymem's order and its swaps into the graph of a training step: a custom optimizer of
// Grappler.

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ops/dymem.h"
#include "ops/dymem_graph.h"
#include "ops/dymem_layers.h"
#include "ops/dymem_rewrite.h"
#include "ops/dymem_work.h"
#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/layer_turns.h"
#include "ops/runtime/dymem/mobility.h"
#include "ops/runtime/dymem/swap_plan.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"

namespace trepak {
namespace {

namespace tf = tensorflow;

class DymemPass : public tf::grappler::CustomGraphOptimizer {
 public:
  std::string name() const override { return "trepak_dymem"; }
  bool UsesFunctionLibrary() const override { return false; }
  absl::Status Init(const tf::RewriterConfig_CustomGraphOptimizer*) override {
    return absl::OkStatus();
  }

  absl::Status Optimize(tf::grappler::Cluster*, const tf::grappler::GrapplerItem& item,
                        tf::GraphDef* optimized) override {
    *optimized = item.graph;
    Dymem* const dymem = Dymem::Global();
    if (dymem == nullptr || IsDone(item.graph)) {
      return absl::OkStatus();
    }
    DymemGraph read;
    TF_RETURN_IF_ERROR(ReadDymemGraph(item, &read));
    const std::vector<int> order = ExecutionOrder(read.step);
    const SwapPlan plan = PlanSwaps(read.step, order, dymem->options().policy);
    const int backward = static_cast<int>(plan.chain.size()) - plan.first_backward;
    DymemPlan told;
    told.graph = item.id;
    told.left_alone = read.left_alone;
    const int behind_all = NodeBehindAll(read.step, item, order, plan);
    if (plan.first_backward == 0 || backward == 0 || behind_all < 0) {
      if (HasGradients(item.graph)) {
        dymem->AddPlan(std::move(told), {}, {});
      }
      return absl::OkStatus();
    }
    told.layers = static_cast<int64_t>(plan.chain.size());
    told.swapped = static_cast<int64_t>(plan.swaps.size());
    told.waits = RewriteStep(read, plan, LayerTurns(read.step, order, plan), behind_all, optimized);
    if (DymemTrace* const trace = dymem->trace()) {
      std::vector<NodeWork> work;
      TF_RETURN_IF_ERROR(WorkOf(item, &work));
      trace->SetGraph({read.step, std::move(work)});
    }
    dymem->AddPlan(std::move(told), GroupsOf(read.step, plan), BlindNodes(item.graph));
    return absl::OkStatus();
  }

 private:
  // Grappler calls twice.
  static bool IsDone(const tf::GraphDef& graph) {
    for (const tf::NodeDef& node : graph.node()) {
      if (node.op() == "TrepakSynchronize") {
        return true;
      }
    }
    return false;
  }

  // What has to run and may wait for all layers: a result of the function, or what runs last; -1 if
  // there is neither.
  static int NodeBehindAll(const StepGraph& step, const tf::grappler::GrapplerItem& item,
                           const std::vector<int>& order, const SwapPlan& plan) {
    const std::unordered_set<std::string> has_to_run = item.NodesToPreserve();
    const std::unordered_set<int> layers(plan.chain.begin(), plan.chain.end());
    int last = -1;
    for (const int number : order) {
      const tf::NodeDef& node = item.graph.node(number);
      if (EndsFunction(node.op()) && node.attr().at("T").type() != tf::DT_RESOURCE) {
        return number;
      }
      if (has_to_run.count(node.name()) > 0 && layers.count(number) == 0 &&
          !EndsFunction(node.op()) && !step.nodes[number].is_left_alone) {
        last = number;
      }
    }
    return last;
  }

  static bool HasGradients(const tf::GraphDef& graph) {
    return std::any_of(graph.node().begin(), graph.node().end(),
                       [](const tf::NodeDef& node) { return IsInGradientScope(node.name()); });
  }

  static std::vector<std::string> BlindNodes(const tf::GraphDef& graph) {
    std::vector<std::string> nodes;
    for (const tf::NodeDef& node : graph.node()) {
      if (IsBlind(node.op())) {
        nodes.push_back(node.name());
      }
    }
    return nodes;
  }

  static std::unordered_map<std::string, TensorGroup> GroupsOf(const StepGraph& step,
                                                               const SwapPlan& plan) {
    std::unordered_map<std::string, TensorGroup> groups;
    const std::vector<TensorGroup> by_tensor = GroupByMobility(step, plan);
    for (size_t tensor = 0; tensor < by_tensor.size(); ++tensor) {
      if (step.tensors[tensor].is_feature_map) {
        groups.emplace(step.nodes[step.tensors[tensor].producer].name, by_tensor[tensor]);
      }
    }
    for (const Swap& swap : plan.swaps) {
      // It comes back for the layer that runs next.
      groups[step.NameOf(swap.tensor)] = {Mobility::kMovable, 1};
    }
    return groups;
  }
};

}  // namespace

void RegisterDymemPass() {
  tf::grappler::CustomGraphOptimizerRegistry::RegisterOptimizerOrDie([] { return new DymemPass; },
                                                                     "trepak_dymem");
}

}  // namespace trepak
