#include "ops/dymem_loops.h"

#include <string>
#include <unordered_map>

#include "tensorflow/core/grappler/op_types.h"
#include "tensorflow/core/grappler/utils.h"

namespace trepak {
namespace {

namespace tf = tensorflow;

class Loops {
 public:
  explicit Loops(const tf::GraphDef& graph) : graph_(graph) {
    for (int node = 0; node < graph_.node_size(); ++node) {
      numbers_[graph_.node(node).name()] = node;
      if (tf::grappler::IsEnter(graph_.node(node))) {
        entries_[NameOf(node)].push_back(node);
      }
    }
  }

  // All that enter the loop that a node leaves.
  const std::vector<int>& EntriesOf(int exit) { return entries_[NameOf(EntryOf(exit))]; }

 private:
  std::string NameOf(int entry) const {
    const auto& attributes = graph_.node(entry).attr();
    const auto found = attributes.find("frame_name");
    return found == attributes.end() ? "" : found->second.s();
  }

  // By which the value came in that the loop returns: the first input of what merges it with the
  // value of the last round, which its switch reads.
  int EntryOf(int exit) const {
    int node = exit;
    while (!tf::grappler::IsEnter(graph_.node(node)) &&
           !tf::grappler::IsNextIteration(graph_.node(node)) &&
           graph_.node(node).input_size() > 0) {
      int port = 0;
      const auto from =
          numbers_.find(tf::grappler::ParseNodeName(graph_.node(node).input(0), &port));
      if (from == numbers_.end()) {
        break;
      }
      node = from->second;
    }
    return node;
  }

  const tf::GraphDef& graph_;
  std::unordered_map<std::string, int> numbers_;
  std::unordered_map<std::string, std::vector<int>> entries_;  // by the loop's name
};

}  // namespace

std::vector<std::pair<int, int>> LoopOrder(const tf::GraphDef& graph) {
  std::vector<std::pair<int, int>> order;
  Loops loops(graph);
  for (int node = 0; node < graph.node_size(); ++node) {
    if (tf::grappler::IsExit(graph.node(node))) {
      for (const int entry : loops.EntriesOf(node)) {
        order.emplace_back(entry, node);
      }
    }
  }
  return order;
}

}  // namespace trepak
