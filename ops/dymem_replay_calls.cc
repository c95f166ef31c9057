// What Python asks of Dymem's traces and replays.

#include <optional>
#include <string>
#include <utility>

#include "ops/calls.h"
#include "ops/dymem.h"
#include "ops/dymem_names.h"
#include "ops/dymem_trace.h"
#include "ops/runtime/dymem/replay.h"
#include "ops/status_adapter.h"

namespace trepak {
namespace {

absl::Status FindTrace(DymemTrace** trace) {
  Dymem* const dymem = Dymem::Global();
  *trace = dymem == nullptr ? nullptr : dymem->trace();
  return *trace != nullptr
             ? absl::OkStatus()
             : absl::FailedPreconditionError("trepak: this process has no Dymem that traces");
}

absl::Status BeginTrace(const Arguments&, Json*) {
  DymemTrace* trace = nullptr;
  TF_RETURN_IF_ERROR(FindTrace(&trace));
  trace->recorder().Begin();
  return absl::OkStatus();
}

absl::Status EndTrace(const Arguments& given, Json* result) {
  DymemTrace* trace = nullptr;
  TF_RETURN_IF_ERROR(FindTrace(&trace));
  AllocationTrace made = trace->recorder().End(given.Get<int64_t>("batch"));
  size_t held = 0;
  for (int block = 0; block < made.before; ++block) {
    held += made.blocks[block].bytes;
  }
  *result = {{"events", made.events.size()}, {"held_bytes", held}};
  trace->Keep(std::move(made));
  return absl::OkStatus();
}

Json Told(const ReplayPass& pass) {
  return {{"seconds", pass.taken},
          {"computed_seconds", pass.computed},
          {"copied_seconds", pass.copied},
          {"bound_seconds", pass.bound}};
}

Json Told(const ReplayFigures& figures, const AllocationTrace& trace) {
  Json curve = Json::array();
  for (const ReplayPoint& point : figures.curve) {
    curve.push_back({point.live, point.occupied});
  }
  const bool fits = figures.failed_block < 0;
  return {{"fits", fits},
          {"failed_node", fits ? "" : trace.blocks[figures.failed_block].node},
          {"failed_bytes", fits ? 0 : trace.blocks[figures.failed_block].bytes},
          {"peak_live_bytes", figures.peak_live},
          {"peak_occupied_bytes", figures.peak_occupied},
          {"extent_bytes", figures.extent},
          {"shortages", figures.shortages},
          {"waits", figures.waits},
          {"evictions", figures.evictions},
          {"swapped_bytes", figures.swapped_bytes},
          {"fragmentation", figures.fragmentation},
          {"forward", Told(figures.forward)},
          {"backward", Told(figures.backward)},
          {"curve", std::move(curve)}};
}

// Of two batches that were traced, for one in between or beyond.
absl::Status TraceFor(const DymemTrace& trace, const Arguments& given, AllocationTrace* made) {
  const auto traces = trace.traces();
  const auto small = traces.find(given.Get<int64_t>("small"));
  const auto large = traces.find(given.Get<int64_t>("large"));
  if (small == traces.end() || large == traces.end()) {
    return absl::NotFoundError("trepak: no step of such a batch was traced");
  }
  return ToAbslStatus(Extrapolate(small->second, large->second, given.Get<int64_t>("batch"), made));
}

absl::Status ReplayStep(const Arguments& given, Json* result) {
  DymemTrace* traces = nullptr;
  TF_RETURN_IF_ERROR(FindTrace(&traces));
  const auto graph = traces->graph();
  if (graph == nullptr) {
    return absl::FailedPreconditionError("trepak: no step that trains was traced");
  }
  AllocationTrace trace;
  TF_RETURN_IF_ERROR(TraceFor(*traces, given, &trace));
  const ReplayMachine machine{given.Get<double>("operations_per_second"),
                              given.Get<double>("bytes_per_second"),
                              given.Get<double>("link_bytes_per_second")};
  ReplayOptions options;
  options.kind = PoolKindOf(given.Get<std::string>("placement"));
  options.limit = given.Get<size_t>("pool");
  options.beta = given.Get<size_t>("beta");
  options.overlaps = given.Get<bool>("overlaps");
  options.jitter = given.Get<double>("jitter");
  options.seed = given.Get<uint64_t>("seed");
  const ReplayProgram program = MakeReplayProgram(
      graph->step, graph->work, trace, SwapPolicyOf(given.Get<std::string>("policy")), machine);
  *result = Told(Replay(program, options), trace);
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"dymem_begin_trace", BeginTrace},
                                                         {"dymem_end_trace", EndTrace},
                                                         {"dymem_replay", ReplayStep}});

}  // namespace
}  // namespace trepak
