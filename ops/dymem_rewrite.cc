#include "ops/dymem_rewrite.h"

#include <map>
#include <string>

#include "ops/dymem_layers.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/grappler/op_types.h"
#include "tensorflow/core/grappler/utils.h"

namespace trepak {
namespace {

namespace tf = tensorflow;

class Rewrite {
 public:
  Rewrite(const DymemGraph& read, const SwapPlan& plan, tf::GraphDef* graph)
      : read_(read), plan_(plan), graph_(*graph) {}

  void Apply(const std::vector<LayerTurn>& turns, tf::NodeDef* behind_all) {
    AddStep(turns.size());
    for (size_t turn = 0; turn < turns.size(); ++turn) {
      AddTurn(turns[turn], static_cast<int>(turn));
    }
    AddSynchronizes();
    for (size_t position = 1; position < plan_.chain.size(); ++position) {
      if (!read_.step.nodes[plan_.chain[position]].is_merged) {
        RunAfter(Node(position), Before(static_cast<int>(position)));
      }
    }
    std::string last;
    for (const Swap& swap : plan_.swaps) {
      last = AddSwap(swap, last);
    }
    AddEnd(behind_all);
  }

  // How many layers wait for copies to be done.
  int64_t waits() const { return static_cast<int64_t>(synchronizes_.size()); }

 private:
  tf::NodeDef* Node(size_t position) { return graph_.mutable_node(plan_.chain[position]); }
  const std::string& NameAt(size_t position) { return Node(position)->name(); }

  static void RunAfter(tf::NodeDef* node, const std::string& earlier) {
    for (const std::string& input : node->input()) {
      int port = 0;
      if (tf::grappler::ParseNodeName(input, &port) == earlier) {
        return;
      }
    }
    node->add_input("^" + earlier);
  }

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
  const std::string& DeviceOf(const Swap& swap) const {
    return graph_.node(read_.step.tensors[swap.tensor].producer).device();
  }

  // On the device whose tensors swap, if there is one: its kernel sees by its place whether a step
  // may stay.
  void AddStep(size_t turns) {
    std::string device = graph_.node(plan_.chain[0]).device();
    for (const Swap& swap : plan_.swaps) {
      if (DeviceOf(swap).find("CPU") == std::string::npos) {
        device = DeviceOf(swap);
      }
    }
    tf::AddNodeAttr("turns", static_cast<int64_t>(turns), Add(kStep, "TrepakStep", device));
  }

  // The layer asks for its turn when it has all that it reads: in a step that stays in memory it
  // need not wait then. Where branches join, one of them does not run, so that nothing but the join
  // itself may wait for it: such a layer asks when the step begins.
  void AddTurn(const LayerTurn& turn, int number) {
    const std::string suffix = std::to_string(number);
    tf::NodeDef* const pass =
        Add("trepak_dymem/pass_turn_" + suffix, "TrepakPassTurn", Node(turn.after)->device());
    pass->add_input(kStep);
    pass->add_input("^" + NameAt(turn.after));
    tf::AddNodeAttr("turn", number, pass);
    ends_.push_back(pass->name());
    tf::NodeDef* const added =
        Add("trepak_dymem/turn_" + suffix, "TrepakTurn", Node(turn.position)->device());
    added->add_input(kStep);
    for (const std::string& input : Node(turn.position)->input()) {
      int port = 0;
      if (!tf::grappler::IsMerge(*Node(turn.position))) {
        RunAfter(added, tf::grappler::ParseNodeName(input, &port));
      }
    }
    tf::AddNodeAttr("turn", number, added);
    tf::AddNodeAttr("layer", NameAt(turn.position), added);
    tf::AddNodeAttr("after", NameAt(turn.after), added);
    turns_[turn.position] = added->name();
  }

  // Between the passes: what is to leave has left before the backward pass begins. In vDNN, behind
  // each layer with which copies begin.
  void AddSynchronizes() {
    std::map<int, std::vector<std::string>> copies;  // by the layer that waits for them
    std::vector<std::string>& offloads = copies[NextThatWaits(plan_.first_backward)];
    for (const Swap& swap : plan_.swaps) {
      offloads.push_back(Prefix(swap) + "_offload");
      if (plan_.waits_each_layer) {
        copies[NextThatWaits(swap.leaves + 1)].push_back(Prefix(swap) + "_offload");
        copies[NextThatWaits(swap.fetch_at + 1)].push_back(Prefix(swap) + "_prefetch");
      }
    }
    copies.erase(static_cast<int>(plan_.chain.size()));  // no layer is behind the last
    for (const auto& [position, names] : copies) {
      AddSynchronize(position, names);
    }
  }

  int NextThatWaits(int position) const {
    const int end = static_cast<int>(plan_.chain.size());
    while (position < end && read_.step.nodes[plan_.chain[position]].is_merged) {
      ++position;
    }
    return position;
  }

  void AddSynchronize(int position, const std::vector<std::string>& copies) {
    tf::NodeDef* const node = Add("trepak_dymem/synchronize_" + std::to_string(position),
                                  "TrepakSynchronize", Node(position)->device());
    node->add_input(kStep);
    for (const std::string& copy : copies) {
      RunAfter(node, copy);
    }
    RunAfter(node, Before(position));
    synchronizes_[position] = node->name();
    ends_.push_back(node->name());
  }

  // Returns the prefetch's name.
  std::string AddSwap(const Swap& swap, const std::string& before) {
    const DymemGraph::Output& output = read_.outputs[swap.tensor];
    const std::string prefix = Prefix(swap);
    const std::string fetch_name = prefix + "_fetch";
    tf::NodeDef* const offload = Add(prefix + "_offload", "TrepakOffload", DeviceOf(swap));
    offload->add_input(TensorName(swap.tensor));
    offload->add_input(kStep);
    tf::AddNodeAttr("T", output.type, offload);
    tf::AddNodeAttr("called", prefix, offload);
    if (plan_.waits_each_layer && swap.leaves > 0) {
      offload->add_input("^" + Before(swap.leaves));
    }
    // Else this node might run after layers that find no room, and keep the thread that it needs.
    if (!read_.step.nodes[plan_.chain[swap.leaves]].is_merged) {
      RunAfter(Node(swap.leaves), offload->name());
    }

    tf::NodeDef* const prefetch = Add(prefix + "_prefetch", "TrepakPrefetch", DeviceOf(swap));
    prefetch->add_input(offload->name());
    prefetch->add_input("^" + Before(swap.fetch_at));
    if (!before.empty()) {
      prefetch->add_input("^" + before);
    }
    const std::string prefetch_name = prefetch->name();
    ends_.push_back(prefetch_name);

    // It does not wait for the prefetch, which is in its order behind others.
    tf::NodeDef* const fetch = Add(fetch_name, "TrepakFetch", DeviceOf(swap));
    fetch->add_input(prefix + "_offload");
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

  // TensorFlow takes out what no result needs.
  void AddEnd(tf::NodeDef* behind_all) {
    tf::NodeDef* end = nullptr;
    if (EndsFunction(behind_all->op())) {
      end = Add("trepak_dymem/end", "TrepakEnd", behind_all->device());
      end->add_input(behind_all->input(0));
      tf::AddNodeAttr("T", behind_all->attr().at("T").type(), end);
      behind_all->set_input(0, end->name());
    } else {
      end = Add("trepak_dymem/end", "NoOp", behind_all->device());
      behind_all->add_input("^" + end->name());
    }
    for (const std::string& node : ends_) {
      end->add_input("^" + node);
    }
  }

  // What has run when that layer begins, in a step that swaps.
  std::string Before(int position) {
    if (const auto found = synchronizes_.find(position); found != synchronizes_.end()) {
      return found->second;
    }
    if (const auto found = turns_.find(position); found != turns_.end()) {
      return found->second;
    }
    return NameAt(LayerBefore(read_.step, plan_, position));
  }

  static constexpr char kStep[] = "trepak_dymem/step";

  const DymemGraph& read_;
  const SwapPlan& plan_;
  tf::GraphDef& graph_;
  std::vector<std::string> ends_;            // what no layer waits for
  std::map<int, std::string> turns_;         // by the layer that waits for it
  std::map<int, std::string> synchronizes_;  // by the layer that waits for them
};

}  // namespace

int64_t RewriteStep(const DymemGraph& read, const SwapPlan& plan,
                    const std::vector<LayerTurn>& turns, int behind_all, tf::GraphDef* graph) {
  Rewrite rewrite(read, plan, graph);
  rewrite.Apply(turns, graph->mutable_node(behind_all));
  return rewrite.waits();
}

}  // namespace trepak
