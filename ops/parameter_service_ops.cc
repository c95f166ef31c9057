// The job's parameter servers, as a system: see ParameterService.

#include "ops/runtime/parameters/parameter_service.h"
#include "ops/session_ops.h"

namespace trepak {
namespace {

Status Make(const System::Opening& opening, Session::Parts* parts) {
  if (ParameterService::Global().client() != nullptr) {
    return FailedPreconditionError("the job's parameter servers run already");
  }
  const Json& given = opening.options;
  ParameterService::Options options;
  options.job = opening.job;
  options.partition.servers = given.at("servers").get<std::vector<uint32_t>>();
  options.partition.split = given.at("split").get<bool>();
  options.partition.slice_elements = given.at("slice_elements").get<int64_t>();
  options.fixed_order = given.at("fixed_order").get<bool>();
  options.by_layer = given.at("by_layer").get<bool>();
  *parts = ParameterService::Global().Make(options, opening.session);
  return OkStatus();
}

// Bytes that left this rank, by priority; what looking priorities up has taken in this process;
// bytes that came to this rank's server, and the CPU time that they took there.
Json Statistics(const Session&) {
  ParameterService& service = ParameterService::Global();
  const ParameterServer::Served served = service.Served();
  return {
      {"bytes_by_priority", service.BytesByPriority()},
      {"lookup_seconds", 1e-9 * static_cast<double>(VariableTable::Global().lookup_nanoseconds())},
      {"served_bytes", served.bytes},
      {"serving_seconds", 1e-9 * static_cast<double>(served.nanoseconds)}};
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    "parameter_servers", {"the job's parameter servers", Make, Statistics, {}});

}  // namespace
}  // namespace trepak
