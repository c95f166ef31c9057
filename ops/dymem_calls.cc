// What Python asks Dymem.

#include <chrono>
#include <string>
#include <vector>

#include "ops/calls.h"
#include "ops/dymem.h"

namespace trepak {
namespace {

Json Told(const PoolFigures& pool) {
  return {{"limit_bytes", pool.limit},
          {"live_bytes", pool.live},
          {"peak_live_bytes", pool.peak_live},
          {"occupied_bytes", pool.occupied},
          {"peak_occupied_bytes", pool.peak_occupied},
          {"peak_small_bytes", pool.peak_small},
          {"scratch_outside_bytes", pool.outside},
          {"peak_scratch_outside_bytes", pool.peak_outside},
          {"allocations", pool.allocations},
          {"shortages", pool.shortages},
          {"waits", pool.waits},
          {"failures", pool.failures},
          {"waited_seconds", pool.waited_seconds},
          {"fragmentation", pool.fragmentation},
          {"mean_fragmentation", pool.mean_fragmentation},
          {"worst_fragmentation", pool.worst_fragmentation}};
}

Json Told(const SwapCounters& swaps) {
  return {{"offloaded_tensors", swaps.offloaded_tensors},
          {"offloaded_bytes", swaps.offloaded_bytes},
          {"fetched_tensors", swaps.fetched_tensors},
          {"fetched_bytes", swaps.fetched_bytes},
          {"taken_back_tensors", swaps.taken_back_tensors},
          {"kept_tensors", swaps.kept_tensors},
          {"kept_bytes", swaps.kept_bytes},
          {"cancelled_offloads", swaps.cancelled_offloads},
          {"offload_busy_seconds", swaps.offload_busy_seconds},
          {"fetch_busy_seconds", swaps.fetch_busy_seconds},
          {"fetch_waited_seconds", swaps.fetch_waited_seconds}};
}

// Each point's seconds, since the first one, live and occupied bytes.
Json Told(const std::vector<MemoryPoint>& curve) {
  Json told = Json::array();
  for (const MemoryPoint& point : curve) {
    const std::chrono::duration<double> since = point.time - curve.front().time;
    told.push_back({since.count(), point.live, point.occupied});
  }
  return told;
}

absl::Status GetStatistics(const Arguments& given, Json* result) {
  Dymem* const dymem = Dymem::Global();
  if (dymem == nullptr) {
    return absl::NotFoundError("trepak: there is no Dymem in this process");
  }
  const SwapEngine& engine = dymem->engine();
  *result = {{"policy", dymem->options().policy_name},
             {"pool", Told(dymem->pool().figures())},
             {"swaps", Told(engine.counters())},
             {"kept_steps", dymem->kept_steps()},
             {"beyond",
              {{"used_bytes", engine.tier().used()},
               {"peak_bytes", engine.tier().peak()},
               {"limit_bytes", engine.tier().limit()}}},
             {"first_failure", engine.first_failure().message()},
             {"graphs", Json::array()}};
  (*result)["swaps"]["evicted_tensors"] = dymem->unread().evicted();
  (*result)["swaps"]["computation_waited_seconds"] = dymem->waits().seconds();
  if (given.GetOr("curve", false)) {
    (*result)["curve"] = Told(dymem->pool().curve());
  }
  for (const DymemPlan& plan : dymem->plans()) {
    (*result)["graphs"].push_back({{"name", plan.graph},
                                   {"layers", plan.layers},
                                   {"swapped_tensors", plan.swapped},
                                   {"waiting_layers", plan.waits},
                                   {"left_alone", plan.left_alone}});
  }
  return absl::OkStatus();
}

absl::Status ResetPeaks(const Arguments&, Json*) {
  if (Dymem* const dymem = Dymem::Global()) {
    dymem->pool().ResetPeaks();
  }
  return absl::OkStatus();
}

// Of the tensor that found no room, once; empty if none was short of it since the last call.
absl::Status TakeShortage(const Arguments&, Json* result) {
  Dymem* const dymem = Dymem::Global();
  *result = dymem == nullptr ? "" : dymem->TakeShortage();
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"dymem_statistics", GetStatistics},
                                                         {"dymem_reset_peaks", ResetPeaks},
                                                         {"dymem_take_shortage", TakeShortage}});

}  // namespace
}  // namespace trepak
