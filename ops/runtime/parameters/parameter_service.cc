#include "ops/runtime/parameters/parameter_service.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace trepak {
namespace {

// Nothing overtakes what waits in the kernel: where the order matters, about one slice of each
// flow.
int SendBuffer(const ParameterService::Options& options) {
  constexpr int64_t kLeast = 16 << 10;
  constexpr int64_t kMost = 1 << 20;
  const int64_t slice = options.partition.slice_elements * static_cast<int64_t>(sizeof(float));
  const int64_t buffer = slice == 0 ? kMost : std::clamp(slice, kLeast, kMost);
  return options.by_layer ? static_cast<int>(buffer) : 0;
}

}  // namespace

Session::Parts ParameterService::Make(const Options& options,
                                      std::shared_ptr<const Session> session) {
  const Endpoint::Options about = options.job.endpoint();
  const std::vector<uint32_t>& servers = options.partition.servers;
  auto errors = std::make_shared<ErrorLatch>();
  auto client = std::make_shared<ParameterClient>(about, options.partition, errors, variables_);
  std::shared_ptr<ParameterServer> server;
  if (std::find(servers.begin(), servers.end(), about.rank) != servers.end()) {
    ParameterServer::ServerOptions server_options;
    server_options.fixed_order = options.fixed_order;
    server_options.delta_factor = 1.0 / about.size;
    server = std::make_shared<ParameterServer>(about, server_options, errors);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    options_ = options;
    session_ = std::move(session);
  }
  const int send_buffer = SendBuffer(options);
  Session::Parts parts(2);
  parts[kClient] = {std::move(client), kServer, servers, options.job.dscp, send_buffer};
  parts[kServer] = {std::move(server), kClient, AllRanks(about.size), options.job.dscp,
                    send_buffer};
  return parts;
}

Precedence ParameterService::PrecedenceOf(uint32_t key) {
  const uint8_t priority = variables_->PriorityOf(key);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!options_.by_layer) {
    return priority;
  }
  return {priority,
          static_cast<uint16_t>(std::min<int>(variables_->LayerOf(key), kLastInOrder - 1))};
}

template <typename Kind>
std::shared_ptr<Kind> ParameterService::Find(Part part) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return session_ == nullptr ? nullptr : session_->Find<Kind>(part);
}

std::shared_ptr<ParameterClient> ParameterService::client(Status* status) const {
  std::shared_ptr<ParameterClient> client = Find<ParameterClient>(kClient);
  if (status != nullptr) {
    *status = client != nullptr
                  ? OkStatus()
                  : NotFoundError(
                        "the job's parameter servers do not run: Horovod was shut down, "
                        "or an elastic job has no TensorFlowKerasState with its "
                        "optimizer");
  }
  return client;
}

std::vector<uint64_t> ParameterService::BytesByPriority() const {
  const std::shared_ptr<Endpoint> parts[] = {Find<Endpoint>(kClient), Find<Endpoint>(kServer)};
  std::vector<uint64_t> bytes;
  for (const std::shared_ptr<Endpoint>& part : parts) {
    const std::vector<uint64_t> more =
        part == nullptr ? std::vector<uint64_t>() : part->BytesByPriority();
    bytes.resize(std::max(bytes.size(), more.size()));
    std::transform(more.begin(), more.end(), bytes.begin(), bytes.begin(), std::plus<>());
  }
  return bytes;
}

ParameterServer::Served ParameterService::Served() const {
  const auto server = Find<ParameterServer>(kServer);
  return server == nullptr ? ParameterServer::Served{} : server->served();
}

ParameterService& ParameterService::Global() {
  static auto* const service = new ParameterService;
  return *service;
}

}  // namespace trepak
