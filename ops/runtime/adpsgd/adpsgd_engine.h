// What a process has of AD-PSGD: its peer, and the flows to the others.

#ifndef TREPAK_OPS_RUNTIME_ADPSGD_ADPSGD_ENGINE_H_
#define TREPAK_OPS_RUNTIME_ADPSGD_ADPSGD_ENGINE_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/runtime/adpsgd/adpsgd_peer.h"
#include "ops/runtime/net/job_endpoints.h"

namespace trepak {

// Starts in two steps, as Engine does. Thread safety: every method may be called from any thread.
// Owns all threads of AD-PSGD.
class AdpsgdEngine {
 public:
  struct Options {
    JobOptions job;
    AdpsgdPeer::Rules peer;
  };

  AdpsgdEngine() = default;
  AdpsgdEngine(const AdpsgdEngine&) = delete;
  AdpsgdEngine& operator=(const AdpsgdEngine&) = delete;

  // Listens. Fails if it runs already.
  Status Start(const Options& options);

  // Where others reach this rank's peer.
  std::string address() const;

  // Opens the flows; addresses are by rank.
  Status Connect(std::vector<std::string> addresses);

  // Ends all threads; what waits fails. Start may follow.
  void Stop(std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // Null if it does not run. What it returns stays valid while it is held.
  std::shared_ptr<AdpsgdPeer> peer() const;

 private:
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  JobOptions job_;
  std::shared_ptr<AdpsgdPeer> peer_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ADPSGD_ADPSGD_ENGINE_H_
