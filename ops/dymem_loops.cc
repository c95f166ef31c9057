#include "ops/dymem_loops.h"

#include <unordered_map>

#include "ops/dymem_layers.h"

namespace trepak {
namespace {

namespace tf = tensorflow;

class Loops {
 public:
  explicit Loops(const tf::GraphDef& graph) : graph_(graph) {
    for (int node = 0; node < graph_.node_size(); ++node) {
      numbers_[graph_.node(node).name()] = node;
      if (EntersLoop(graph_.node(node).op())) {
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
    while (!EntersLoop(graph_.node(node).op()) && !BeginsAgain(graph_.node(node).op()) &&
           graph_.node(node).input_size() > 0) {
      int port = 0;
      const auto from = numbers_.find(SplitInput(graph_.node(node).input(0), &port));
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
    if (LeavesLoop(graph.node(node).op())) {
      for (const int entry : loops.EntriesOf(node)) {
        order.emplace_back(entry, node);
      }
    }
  }
  return order;
}

std::string SplitInput(const std::string& input, int* port) {
  if (!input.empty() && input[0] == '^') {
    *port = -1;
    return input.substr(1);
  }
  const size_t colon = input.rfind(':');
  if (colon == std::string::npos) {
    *port = 0;
    return input;
  }
  *port = std::stoi(input.substr(colon + 1));
  return input.substr(0, colon);
}

}  // namespace trepak
