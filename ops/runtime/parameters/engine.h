// What a process has of the native engine: its parameter server, its client, and their flows.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_ENGINE_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/runtime/net/job_endpoints.h"
#include "ops/runtime/parameters/map_table.h"
#include "ops/runtime/parameters/parameter_client.h"
#include "ops/runtime/parameters/parameter_server.h"

namespace trepak {

// Starts in two steps, since a rank must know all addresses before it connects: Start on all ranks,
// then Connect on all of them.
//
// Thread safety: every method may be called from any thread. Owns all threads of the engine.
class Engine {
 public:
  struct Options {
    JobOptions job;
    PartitionOptions partition;  // its servers are those of the job
    bool fixed_order = false;    // sum in the order of ranks
    // What earlier layers need overtakes the rest in every queue of this host.
    bool by_layer = false;
  };

  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Listens. Fails if it runs already.
  Status Start(const Options& options);

  // Where others reach this rank's server, empty if it is none, and its client.
  std::string server_address() const;
  std::string client_address() const;

  // Opens the flows; addresses are by rank.
  Status Connect(const std::vector<std::string>& servers, const std::vector<std::string>& clients);

  // Ends all threads; what waits fails. Start may follow. The others are told, and get some time to
  // end as well: they may still want answers.
  void Stop(std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // What a parameter's messages go before, from its place in the map_table.
  Precedence PrecedenceOf(const std::string& name);

  // Number of ranks; 0 if the engine does not run.
  uint32_t size() const;

  // Null if the engine does not run. What it returns stays valid while it is held.
  std::shared_ptr<ParameterClient> client() const;

  MapTable& map_table() { return map_table_; }

  // By priority, bytes that this rank has sent to others.
  std::vector<uint64_t> BytesByPriority() const;

  // What this rank's server has done; nothing if it is none.
  ParameterServer::Served Served() const;

  // That of this process.
  static Engine& Global();

 private:
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Options options_;
  std::shared_ptr<ParameterServer> server_;
  std::shared_ptr<ParameterClient> client_;

  MapTable map_table_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_ENGINE_H_
