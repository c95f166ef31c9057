#include "ops/runtime/parameters/engine.h"

#include <algorithm>
#include <utility>

namespace trepak {
namespace {

// Nothing overtakes what waits in the kernel: where the order matters, about one slice of each
// flow.
int SendBuffer(const Engine::Options& options) {
  constexpr int64_t kLeast = 16 << 10;
  constexpr int64_t kMost = 1 << 20;
  const int64_t slice = options.partition.slice_elements * static_cast<int64_t>(sizeof(float));
  const int64_t buffer = slice == 0 ? kMost : std::clamp(slice, kLeast, kMost);
  return options.by_layer ? static_cast<int>(buffer) : 0;
}

}  // namespace

Status Engine::Start(const Options& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (client_ != nullptr) {
    return FailedPreconditionError("the native engine runs already");
  }
  const Endpoint::Options about = options.job.endpoint();
  auto errors = std::make_shared<ErrorLatch>();
  std::shared_ptr<ParameterServer> server;
  const std::vector<uint32_t>& servers = options.partition.servers;
  if (std::find(servers.begin(), servers.end(), about.rank) != servers.end()) {
    ParameterServer::ServerOptions server_options;
    server_options.fixed_order = options.fixed_order;
    server_options.delta_factor = 1.0 / about.size;
    server = std::make_shared<ParameterServer>(about, server_options, errors);
    TREPAK_RETURN_IF_ERROR(Listen(options.job, server.get()));
  }
  auto client = std::make_shared<ParameterClient>(about, options.partition, errors);
  TREPAK_RETURN_IF_ERROR(Listen(options.job, client.get()));
  options_ = options;
  server_ = std::move(server);
  client_ = std::move(client);
  return OkStatus();
}

std::string Engine::server_address() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return server_ == nullptr ? "" : server_->transport().address();
}

std::string Engine::client_address() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return client_ == nullptr ? "" : client_->transport().address();
}

Status Engine::Connect(const std::vector<std::string>& servers,
                       const std::vector<std::string>& clients) {
  std::shared_ptr<ParameterServer> server;
  std::shared_ptr<ParameterClient> client;
  std::vector<int> dscp;
  int send_buffer = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    server = server_;
    client = client_;
    dscp = options_.job.dscp;
    send_buffer = SendBuffer(options_);
  }
  if (client == nullptr) {
    return FailedPreconditionError("the native engine does not run");
  }
  TREPAK_RETURN_IF_ERROR(client->Connect(servers, dscp, send_buffer));
  return server == nullptr ? OkStatus() : server->Connect(clients, dscp, send_buffer);
}

Precedence Engine::PrecedenceOf(const std::string& name) {
  const uint8_t priority = map_table_.PriorityOf(name);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!options_.by_layer) {
    return priority;
  }
  return {priority,
          static_cast<uint16_t>(std::min<int>(map_table_.LayerOf(name), kLastInOrder - 1))};
}

uint32_t Engine::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return client_ == nullptr ? 0 : options_.job.size;
}

void Engine::Stop(std::chrono::milliseconds patience) {
  std::shared_ptr<ParameterServer> server;
  std::shared_ptr<ParameterClient> client;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    server = std::move(server_);
    client = std::move(client_);
    server_ = nullptr;
    client_ = nullptr;
  }
  LeaveTogether({server.get(), client.get()}, patience);
  if (client != nullptr) {
    client->Cancel(CancelledError("the native engine was stopped"));
    client->Stop();
  }
  if (server != nullptr) {
    server->Stop();
  }
}

std::shared_ptr<ParameterClient> Engine::client() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return client_;
}

std::vector<uint64_t> Engine::BytesByPriority() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint64_t> bytes(options_.job.dscp.size(), 0);
  for (const Endpoint* endpoint :
       {static_cast<Endpoint*>(server_.get()), static_cast<Endpoint*>(client_.get())}) {
    if (endpoint != nullptr) {
      const std::vector<uint64_t> more = endpoint->BytesByPriority();
      for (size_t i = 0; i < more.size(); ++i) {
        bytes[i] += more[i];
      }
    }
  }
  return bytes;
}

ParameterServer::Served Engine::Served() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return server_ == nullptr ? ParameterServer::Served{} : server_->served();
}

Engine& Engine::Global() {
  static Engine* const engine = new Engine;
  return *engine;
}

}  // namespace trepak
