// The table of variables: which there are, where they stand, what separates their priorities.

#include <map>
#include <string>
#include <vector>

#include "ops/calls.h"
#include "ops/runtime/parameters/variable_table.h"
#include "ops/status_adapter.h"

namespace trepak {
namespace {

absl::Status Add(const Arguments& given, Json*) {
  static const std::map<std::string, ElementType> types = {{"float32", ElementType::kFloat32},
                                                           {"float64", ElementType::kFloat64}};
  Variable variable;
  variable.key = given.Get<uint32_t>("key");
  variable.name = given.Get<std::string>("label");
  const auto type = types.find(given.Get<std::string>("dtype"));
  if (type == types.end()) {
    return absl::InvalidArgumentError(variable.name + " must be of float32 or float64");
  }
  variable.type = type->second;
  variable.elements = given.Get<size_t>("elements");
  return ToFlowError(VariableTable::Global().Add(variable));
}

absl::Status Place(const Arguments& given, Json*) {
  const VariablePlace place = {static_cast<int>(given.AtLeast(1, "layer")),
                               given.Get<bool>("fully_connected")};
  return ToFlowError(VariableTable::Global().Place(given.Get<uint32_t>("key"), place));
}

// What separates the priorities: falling urgencies, or, if there are none, kinds of layers.
absl::Status SetThresholds(const Arguments& given, Json*) {
  VariableTable& table = VariableTable::Global();
  if (given.Get<Json>("thresholds").is_null()) {
    table.SetCoarse();
    return absl::OkStatus();
  }
  const auto thresholds = given.Get<std::vector<float>>("thresholds");
  return ToFlowError(table.SetThresholds({thresholds.begin(), thresholds.end()}));
}

[[maybe_unused]] const bool kRegistered = RegisterCalls(
    {{"add_variable", Add}, {"place_variable", Place}, {"set_thresholds", SetThresholds}});

}  // namespace
}  // namespace trepak
