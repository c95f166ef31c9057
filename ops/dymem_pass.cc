// Puts Dymem's order and its swaps into the graph of a training step: a custom optimizer of
// Grappler.

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/dymem.h"
#include "ops/dymem_graph.h"
#include "ops/dymem_layers.h"
#include "ops/dymem_work.h"
#include "ops/runtime/dymem/execution_order.h"
#include "ops/runtime/dymem/mobility.h"
#include "ops/runtime/dymem/swap_plan.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"

namespace trepak {
namespace {

namespace tf = tensorflow;

// Adds nodes and edges; takes none away.
class Rewrite {
 public:
  Rewrite(const DymemGraph& read, const SwapPlan& plan, tf::GraphDef* graph)
      : read_(read), plan_(plan), graph_(*graph) {}

  void Apply() {
    AddSynchronizes();
    for (size_t position = 1; position < plan_.chain.size(); ++position) {
      if (!IsMerged(position)) {
        RunAfter(Node(position), Before(static_cast<int>(position)));
      }
    }
    std::string last;
    for (const Swap& swap : plan_.swaps) {
      last = AddSwap(swap, last);
    }
  }

  // How many layers wait for copies to be done.
  int64_t waits() const { return static_cast<int64_t>(synchronizes_.size()); }

 private:
  tf::NodeDef* Node(size_t position) { return graph_.mutable_node(plan_.chain[position]); }
  const std::string& NameAt(size_t position) { return Node(position)->name(); }

  static void RunAfter(tf::NodeDef* node, const std::string& earlier) {
    for (const std::string& input : node->input()) {
      int port = 0;
      if (SplitInput(input, &port) == earlier) {
        return;
      }
    }
    node->add_input("^" + earlier);
  }

  // TensorFlow makes one node of it and the filter's gradient that reads the same, after this pass.
  // What has its turn between the two would wait for that node, and be waited for by it: so nothing
  // waits for this one, and it waits for its input alone.
  bool IsMerged(size_t position) { return Node(position)->op() == "BiasAddGrad"; }

  // `device`: of the tensor, or the layer, that it is for.
  tf::NodeDef* Add(const std::string& name, const std::string& op, const std::string& device) {
    tf::NodeDef* const node = graph_.add_node();
    node->set_name(name);
    node->set_op(op);
    node->set_device(device);
    return node;
  }

  std::string TensorName(int tensor) const {
    const std::string& node = read_.step.nodes[read_.step.tensors[tensor].producer].name;
    const int port = read_.step.tensors[tensor].port;
    return port == 0 ? node : node + ":" + std::to_string(port);
  }

  std::string Prefix(const Swap& swap) const { return read_.step.NameOf(swap.tensor); }

  // Between the passes: what is to leave has left before the backward pass begins. In vDNN, behind
  // each layer with which copies begin.
  void AddSynchronizes() {
    std::map<int, std::vector<std::string>> copies;  // by the layer that waits for them
    std::vector<std::string>& offloads = copies[plan_.first_backward];
    for (const Swap& swap : plan_.swaps) {
      offloads.push_back(Prefix(swap) + "_offload");
      if (plan_.waits_each_layer) {
        copies[swap.leaves + 1].push_back(Prefix(swap) + "_offload");
        copies[swap.fetch_at + 1].push_back(Prefix(swap) + "_prefetch");
      }
    }
    copies.erase(static_cast<int>(plan_.chain.size()));  // no layer is behind the last
    for (const auto& [position, names] : copies) {
      AddSynchronize(position, names);
    }
  }

  void AddSynchronize(int position, const std::vector<std::string>& copies) {
    tf::NodeDef* const node = Add("trepak_dymem/synchronize_" + std::to_string(position),
                                  "TrepakSynchronize", Node(position)->device());
    for (const std::string& copy : copies) {
      RunAfter(node, copy);
    }
    RunAfter(node, Before(position));
    synchronizes_[position] = node->name();
  }

  // Returns the prefetch's name.
  std::string AddSwap(const Swap& swap, const std::string& before) {
    const DymemGraph::Output& output = read_.outputs[swap.tensor];
    const std::string prefix = Prefix(swap);
    const std::string fetch_name = prefix + "_fetch";
    const std::string device = graph_.node(read_.step.tensors[swap.tensor].producer).device();
    tf::NodeDef* const offload = Add(prefix + "_offload", "TrepakOffload", device);
    offload->add_input(TensorName(swap.tensor));
    tf::AddNodeAttr("T", output.type, offload);
    tf::AddNodeAttr("called", prefix, offload);
    if (plan_.waits_each_layer && swap.leaves > 0) {
      offload->add_input("^" + Before(swap.leaves));
    }

    tf::NodeDef* const prefetch = Add(prefix + "_prefetch", "TrepakPrefetch", device);
    prefetch->add_input(offload->name());
    prefetch->add_input("^" + Before(swap.fetch_at));
    if (!before.empty()) {
      prefetch->add_input("^" + before);
    }
    const std::string prefetch_name = prefetch->name();

    tf::NodeDef* const fetch = Add(fetch_name, "TrepakFetch", device);
    fetch->add_input(prefix + "_offload");
    fetch->add_input("^" + prefetch_name);
    fetch->add_input("^" + Before(swap.needed_at));
    tf::AddNodeAttr("T", output.type, fetch);
    tf::AddNodeAttr("shape", output.shape, fetch);

    const std::string old = TensorName(swap.tensor);
    for (const int reader : swap.readers) {
      for (std::string& input : *graph_.mutable_node(reader)->mutable_input()) {
        if (input == old || input == old + ":0") {
          input = fetch_name;
        }
      }
    }
    return prefetch_name;
  }

  // What has run when that layer begins.
  std::string Before(int position) {
    for (int at = position;; --at) {
      const auto found = synchronizes_.find(at);
      if (found != synchronizes_.end()) {
        return found->second;
      }
      if (at == 1 || !IsMerged(at - 1)) {
        return NameAt(at - 1);
      }
    }
  }

  const DymemGraph& read_;
  const SwapPlan& plan_;
  tf::GraphDef& graph_;
  std::map<int, std::string> synchronizes_;  // by the layer that waits for them
};

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
    const SwapPlan plan = PlanSwaps(read.step, ExecutionOrder(read.step), dymem->options().policy);
    const int backward = static_cast<int>(plan.chain.size()) - plan.first_backward;
    DymemPlan told;
    told.graph = item.id;
    told.left_alone = read.left_alone;
    if (plan.first_backward == 0 || backward == 0) {
      if (HasGradients(item.graph)) {
        dymem->AddPlan(std::move(told), {}, {});
      }
      return absl::OkStatus();
    }
    told.layers = static_cast<int64_t>(plan.chain.size());
    told.swapped = static_cast<int64_t>(plan.swaps.size());
    Rewrite rewrite(read, plan, optimized);
    rewrite.Apply();
    told.waits = rewrite.waits();
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
