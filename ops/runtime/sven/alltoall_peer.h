// Sven's alltoall (thesis, section 6.1.1, Figure 6.1a): each rank scatters its splits as soon as it
// has them, and waits for nobody to arrive.

#ifndef TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_PEER_H_
#define TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_PEER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/runtime/net/endpoint.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/observe/timeline.h"
#include "ops/runtime/sven/alltoall_inbox.h"
#include "ops/runtime/sven/alltoall_outbox.h"
#include "ops/runtime/sven/alltoall_spans.h"

namespace trepak {

// Exchanges of one name follow each other on every rank, and are matched by their number: the
// splits of iteration t of all ranks belong together. Of each name several may be under way, and
// names need no order among each other. What comes before this rank has asked for it waits in the
// inbox; how much may do so is bounded by credits, see AlltoallOutbox.
//
// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block.
class AlltoallPeer : public Endpoint {
 public:
  static constexpr const char* kSystem = "alltoall";
  using Callback = AlltoallExchange::Callback;

  struct Counters {
    uint64_t exchanges = 0;      // that are over
    uint64_t bytes_sent = 0;     // of splits, to other ranks
    uint64_t bytes_beside = 0;   // of these, beside the flows; see Transport
    uint64_t held_up = 0;        // splits that waited for credits
    size_t most_held = 0;        // bytes of splits that waited for this rank or for other ranks'
    double waiting_seconds = 0;  // from asking to the last split, over all exchanges
    std::vector<uint64_t>
        last;  // by rank, exchanges for whose split of it this rank waited longest
  };

  // `credit`: bytes of splits that a rank may hold for each other rank before it takes them.
  // `timeline` shows when exchanges are under way, and outlives this.
  AlltoallPeer(const Options& options, size_t credit, std::shared_ptr<ErrorLatch> errors,
               Timeline* timeline = &Timeline::Global());
  ~AlltoallPeer() override { Stop(); }

  // Sends this rank's splits, by rank, of the next iteration of exchanges of that name, beginning
  // with the rank after this one. Returns what to ask for. The payloads must not change any more.
  Status Scatter(const std::string& name, const AlltoallRows& rows, std::vector<Payload> splits,
                 AlltoallInbox::Id* id);

  // Passes the splits that all ranks have sent this one in that iteration, by rank, when they are
  // in; once.
  void Gather(const AlltoallInbox::Id& id, Callback callback);

  // Says instead that nobody will ask for it.
  void Discard(const AlltoallInbox::Id& id);

  Counters counters() const;

  // Sends first what waits for credits.
  void Leave() override;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  struct Peer {
    explicit Peer(size_t credit) : outbox(credit) {}
    AlltoallOutbox outbox;
    bool was_told = false;  // that splits wait for it to take some
    bool waits = false;     // it has said so itself
  };
  struct Over {
    Callback callback;
    std::vector<Payload> splits;
  };

  // All of these require mutex_.
  Status KeyOf(const std::string& name, uint32_t* key);
  Status ScatterAs(const AlltoallInbox::Id& id, const AlltoallRows& rows,
                   std::vector<Payload> splits);
  Status SendTo(uint32_t rank);
  Status TakeReport(const Message& message);
  Status Report(uint32_t rank);
  Status Want(uint32_t rank, const AlltoallInbox::Id& id);
  Status End(const AlltoallInbox::Id& id, Over* over);
  Status TooLate(const AlltoallInbox::Id& id, const AlltoallExchange& exchange) const;

  const size_t credit_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::unordered_map<uint32_t, std::string> names_;  // by key
  std::unordered_map<uint32_t, uint64_t> next_;      // iteration, by key
  std::vector<Peer> peers_;                          // by rank
  AlltoallInbox inbox_;
  AlltoallSpans spans_;
  Counters counters_;
};

// What a rank asks for with: whoever lets go of it without asking says that nobody will.
//
// Thread safety: as AlltoallPeer.
class AlltoallTicket {
 public:
  AlltoallTicket(std::shared_ptr<AlltoallPeer> peer, const AlltoallInbox::Id& id)
      : peer_(std::move(peer)), id_(id) {}
  AlltoallTicket(const AlltoallTicket&) = delete;
  AlltoallTicket& operator=(const AlltoallTicket&) = delete;
  ~AlltoallTicket();

  // As AlltoallPeer::Gather; fails if it was done before.
  void Gather(AlltoallPeer::Callback callback);

 private:
  const std::shared_ptr<AlltoallPeer> peer_;
  const AlltoallInbox::Id id_;
  std::atomic<bool> was_used_{false};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_PEER_H_
