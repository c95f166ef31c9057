// What a process has of the job's parameter servers: perhaps one of them, a client of all.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_SERVICE_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_SERVICE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/runtime/net/session.h"
#include "ops/runtime/parameters/parameter_client.h"
#include "ops/runtime/parameters/parameter_server.h"
#include "ops/runtime/parameters/variable_table.h"

namespace trepak {

// Knows the session that runs the servers, whose options tell what goes first.
//
// Thread safety: every method may be called from any thread.
class ParameterService {
 public:
  struct Options {
    JobOptions job;
    PartitionOptions partition;  // its servers are those of the job
    bool fixed_order = false;    // sum in the order of ranks
    // What earlier layers need overtakes the rest in every queue of this host.
    bool by_layer = false;
  };

  enum Part : size_t { kClient, kServer };

  // `variables`: outlives it.
  explicit ParameterService(VariableTable* variables = &VariableTable::Global())
      : variables_(variables) {}
  ParameterService(const ParameterService&) = delete;
  ParameterService& operator=(const ParameterService&) = delete;

  // Makes both parts of a session, which is to be opened with them next.
  Session::Parts Make(const Options& options, std::shared_ptr<const Session> session);

  // What a variable's messages go before, from its place in the network.
  Precedence PrecedenceOf(uint32_t key);

  // Null, with `status` saying so, if the servers don't run; what it returns stays valid while it
  // is held.
  std::shared_ptr<ParameterClient> client(Status* status = nullptr) const;

  // By priority, bytes that this rank has sent to others.
  std::vector<uint64_t> BytesByPriority() const;

  // What this rank's server has done; nothing if it is none.
  ParameterServer::Served Served() const;

  // That of this process.
  static ParameterService& Global();

 private:
  template <typename Kind>
  std::shared_ptr<Kind> Find(Part part) const;

  VariableTable* const variables_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Options options_;
  std::shared_ptr<const Session> session_;  // null before the first one
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_SERVICE_H_
