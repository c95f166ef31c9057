// Where a barrier makes workers wait least.

#include <chrono>
#include <map>
#include <string>

#include "ops/calls.h"
#include "ops/runtime/elastic_bsp/zipline.h"
#include "ops/status_adapter.h"

namespace trepak {
namespace {

// end_times: [workers, iterations], when they are expected to end.
absl::Status Search(const Arguments& given, Json* found) {
  using Algorithm = Barrier (*)(const EndTimes&);
  static const std::map<std::string, Algorithm> algorithms = {{"zipline", ZipLine},
                                                              {"paper", ZipLineOfPaper},
                                                              {"grid_scan", GridScan},
                                                              {"full_grid_scan", FullGridScan},
                                                              {"naive", NaiveSearch}};
  const auto algorithm = algorithms.find(given.Get<std::string>("algorithm"));
  if (algorithm == algorithms.end()) {
    return absl::InvalidArgumentError("there is no such algorithm");
  }
  const auto matrix = given.Get<Matrix>("end_times");
  const EndTimes ends = {matrix.values.data(), matrix.rows, matrix.columns};
  TF_RETURN_IF_ERROR(ToAbslStatus(CheckEndTimes(ends)));
  const auto begin = std::chrono::steady_clock::now();
  const Barrier barrier = algorithm->second(ends);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  *found = {{"waiting_time", barrier.waiting_time},
            {"barrier_time", barrier.barrier_time},
            {"iterations", barrier.iterations},
            {"search_seconds", took.count()}};
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"search_barrier", Search}});

}  // namespace
}  // namespace trepak
