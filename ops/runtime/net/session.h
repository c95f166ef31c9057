// What a process has of one system: its endpoints, which begin and end together.

#ifndef TREPAK_OPS_RUNTIME_NET_SESSION_H_
#define TREPAK_OPS_RUNTIME_NET_SESSION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/job_endpoints.h"

namespace trepak {

// A system has parts, such as a worker on each rank and a coordinator on one of them, each of which
// is an endpoint. A session opens in two steps, since a rank must know all addresses before it
// connects: Open on all ranks, then Connect on all of them. When it was closed it may be opened
// again, with other members.
//
// Thread safety: every method may be called from any thread. Owns the threads of its endpoints.
class Session {
 public:
  struct Part {
    std::shared_ptr<Endpoint> endpoint;  // null: other ranks have it
    size_t peers = 0;                    // the part that its flows lead to
    std::vector<uint32_t> members;       // the ranks whose part that is
    std::vector<int> dscp;               // what marks its packets, by priority
    int send_buffer = 0;                 // bytes; 0: the system's own choice
    Carrier carrier = Carrier::kFlows;
  };
  using Parts = std::vector<Part>;
  using Addresses = std::vector<std::string>;

  // `name`: of the system, as users know it.
  explicit Session(std::string name) : name_(std::move(name)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Listens. Fails if the session is open. On all ranks the parts are the same, in one order.
  Status Open(const JobOptions& job, Parts parts);

  // By part, where others reach it on this rank; empty where it is not.
  Addresses addresses() const;

  // Opens the flows; addresses are by part, and by rank.
  Status Connect(const std::vector<Addresses>& addresses);

  // Ends all threads; what waits fails. The others are told, and get some time to end as well: they
  // may still want answers. Does nothing if the session is not open.
  void Close(std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // A part of this rank's, null if it has none or the session is not open. What it returns stays
  // valid while it is held.
  template <typename Kind>
  std::shared_ptr<Kind> Find(size_t part) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return part < parts_.size() ? std::static_pointer_cast<Kind>(parts_[part].endpoint) : nullptr;
  }

  // What whoever needs it is told when it is not open.
  Status NotOpen() const;

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  uint32_t size_ = 0;  // of the job. Guarded by mutex_.
  Parts parts_;        // Guarded by mutex_; none if the session is not open.
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_SESSION_H_
