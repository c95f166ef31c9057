// The local solver of CoCoA, by number, on NumPy's arrays.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ops/calls.h"
#include "ops/numbered.h"
#include "ops/runtime/chicle/cocoa_solver.h"
#include "ops/status_adapter.h"

namespace trepak {

void from_json(const Json& given, CocoaProblem& problem) {
  static const std::map<std::string, CocoaProblem::Loss> losses = {
      {"hinge", CocoaProblem::Loss::kHinge},
      {"squared_hinge", CocoaProblem::Loss::kSquaredHinge},
      {"logistic", CocoaProblem::Loss::kLogistic},
      {"squared", CocoaProblem::Loss::kSquared}};
  problem.loss = losses.at(given.at("loss").get<std::string>());
  problem.c = given.at("c").get<double>();
  problem.sigma = given.at("sigma").get<double>();
  problem.column = given.at("column").get<size_t>();
  problem.has_classes = given.at("has_classes").get<bool>();
  problem.positive = given.at("positive").get<double>();
  problem.bias = given.at("bias").get<double>();
  problem.target_center = given.at("target_center").get<double>();
}

namespace {

using Vector = ArrayInPlace<const double>;

// The problem with its center, and the features beside a bias.
struct Asked {
  std::shared_ptr<CocoaSolver> solver;
  CocoaProblem problem;
  size_t features = 0;
  Vector weights;
};

absl::Status Read(const Arguments& given, Asked* asked) {
  asked->solver = Numbered<CocoaSolver>::Global().Find(given.Get<int64_t>("solver"));
  if (asked->solver == nullptr) {
    return absl::NotFoundError("trepak: there is no such solver");
  }
  asked->problem = given.Get<CocoaProblem>("problem");
  asked->weights = given.Get<Vector>("weights");
  const size_t biases = asked->problem.bias != 0 ? 1 : 0;
  if (asked->weights.size < biases) {
    return absl::InvalidArgumentError("trepak: weights: must have one for the bias");
  }
  asked->features = asked->weights.size - biases;
  const auto center = given.Get<Vector>("center");
  if (center.size != 0 && center.size != asked->features) {
    return absl::InvalidArgumentError("trepak: center: must be of all features or of none");
  }
  asked->problem.center.assign(center.data, center.data + center.size);
  return absl::OkStatus();
}

absl::Status MakeSolver(const Arguments& given, Json* result) {
  auto store = Numbered<ChunkStore>::Global().Find(given.Get<int64_t>("store"));
  if (store == nullptr) {
    return absl::NotFoundError("trepak: there is no such store");
  }
  *result = Numbered<CocoaSolver>::Global().Add(std::make_shared<CocoaSolver>(std::move(store)));
  return absl::OkStatus();
}

absl::Status DropSolver(const Arguments& given, Json*) {
  Numbered<CocoaSolver>::Global().Take(given.Get<int64_t>("solver"));
  return absl::OkStatus();
}

absl::Status RunEpoch(const Arguments& given, Json*) {
  Asked asked;
  TF_RETURN_IF_ERROR(Read(given, &asked));
  const auto change = given.Get<ArrayInPlace<double>>("change");
  if (change.size != asked.weights.size) {
    return absl::InvalidArgumentError("trepak: change: must be of the weights' size");
  }
  return ToAbslStatus(asked.solver->Epoch(asked.problem, given.Get<uint64_t>("seed"),
                                          given.Get<size_t>("count"), asked.features,
                                          asked.weights.data, change.data));
}

absl::Status Evaluate(const Arguments& given, Json* result) {
  Asked asked;
  TF_RETURN_IF_ERROR(Read(given, &asked));
  const auto sum = given.Get<ArrayInPlace<double>>("sum");
  if (sum.size != 0 && sum.size != asked.weights.size) {
    return absl::InvalidArgumentError("trepak: sum: must be of the weights' size");
  }
  CocoaObjective objective;
  TF_RETURN_IF_ERROR(
      ToAbslStatus(asked.solver->Evaluate(asked.problem, asked.features, asked.weights.data,
                                          &objective, sum.size == 0 ? nullptr : sum.data)));
  *result = {{"losses", objective.losses}, {"gaps", objective.gaps}};
  return absl::OkStatus();
}

absl::Status TellOrder(const Arguments& given, Json*) {
  const auto order = given.Get<ArrayInPlace<int64_t>>("order");
  const auto drawn = CocoaSolver::Order(order.size, given.Get<uint64_t>("seed"));
  std::copy(drawn.begin(), drawn.end(), order.data);
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"cocoa_make_solver", MakeSolver},
                                                         {"cocoa_drop_solver", DropSolver},
                                                         {"cocoa_epoch", RunEpoch},
                                                         {"cocoa_evaluate", Evaluate},
                                                         {"cocoa_order", TellOrder}});

}  // namespace
}  // namespace trepak
