// Lanes: an optimizer's gradients through Horovod's collectives, in a training step's background.

#include <memory>
#include <string>
#include <vector>

#include "ops/calls.h"
#include "ops/horovod_calls.h"
#include "ops/lane_table.h"
#include "ops/status_adapter.h"

namespace trepak {
namespace {

// Makes variables' gradients travel through Horovod's collectives; see CollectiveLane.
absl::Status Start(const Arguments& given, Json*) {
  CollectiveLane::Options options;
  options.name = given.Get<std::string>("lane");
  options.me = given.Get<std::string>("me");
  options.rules.piece_bytes = static_cast<size_t>(given.AtLeast(8, "piece_bytes"));
  options.rules.window_bytes = static_cast<size_t>(given.AtLeast(8, "window_bytes"));
  options.rules.urgent_bytes = static_cast<size_t>(given.AtLeast(0, "urgent_bytes"));
  if (options.rules.piece_bytes % 8 != 0) {
    return absl::InvalidArgumentError("pieces must hold whole numbers of float64");
  }
  std::shared_ptr<CollectiveCalls> calls;
  TF_RETURN_IF_ERROR(ToFlowError(MakeHorovodCalls(0, &calls)));
  std::vector<Variable> variables;
  for (const uint32_t key : given.Get<std::vector<uint32_t>>("keys")) {
    const auto found = VariableTable::Global().Find(key);
    if (!found.has_value()) {
      return absl::NotFoundError("variable " + std::to_string(key) + " is not known");
    }
    variables.push_back(*found);
  }
  if (variables.empty()) {
    return absl::InvalidArgumentError("a lane must have a variable");
  }
  LaneTable::Global().Add(variables, std::make_shared<CollectiveLane>(options, variables, calls));
  return absl::OkStatus();
}

absl::Status StopAll(const Arguments&, Json*) {
  LaneTable::Global().Clear(CancelledError("Horovod was shut down"));
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered =
    RegisterCalls({{"start_lane", Start}, {"stop_lanes", StopAll}});

}  // namespace
}  // namespace trepak
