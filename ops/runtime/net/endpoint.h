// What parameter servers, their clients, workers and coordinators are: a transport with its flows,
// and one way to fail.

#ifndef TREPAK_OPS_RUNTIME_NET_ENDPOINT_H_
#define TREPAK_OPS_RUNTIME_NET_ENDPOINT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/channel_table.h"
#include "ops/runtime/net/error_latch.h"
#include "ops/runtime/net/transport.h"

namespace trepak {

// What every endpoint may say to every other.
namespace endpoint {
constexpr MessageKind kAbort = KindOf("endpoint", 0xf0);  // it has failed; why, as text
constexpr MessageKind kLeave = KindOf("endpoint", 0xf1);  // nothing more comes on this flow
}  // namespace endpoint

// Checks what comes in, and hands it to the subclass. The first failure is parked in the latch,
// which the process's endpoints share, and told to all peers, so that no rank waits for one that
// has given up.
//
// Thread safety: Attach, Connect and Stop are called by the owner, in this order, one at a time;
// what is protected is for subclasses.
class Endpoint : public Transport::Receiver {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    uint32_t rank = 0;
    uint32_t size = 1;
    std::chrono::milliseconds deadline{60'000};  // of every wait
  };

  Endpoint(const Options& options, std::shared_ptr<ErrorLatch> errors);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Takes the transport, whose receiver this must be.
  void Attach(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }

  const Transport& transport() const { return *transport_; }

  // Opens the flows to peers; see ChannelTable::Open.
  Status Connect(const std::vector<std::string>& addresses, const std::vector<int>& dscp,
                 int send_buffer = 0);

  // By priority, bytes of payloads sent to other ranks.
  std::vector<uint64_t> BytesByPriority() const { return channels_.BytesByPriority(); }

  // Tells all peers that this endpoint is done: they won't take its end for a failure. Subclasses
  // send first what they still have for others.
  virtual void Leave();

  // Waits until all peers have left too, or `deadline` has passed. If this process has failed:
  // until all peers whom this endpoint has told of it have failed as well.
  void WaitUntilAllHaveLeft(Clock::time_point deadline);

  // Ends the transport. Subclasses call it in their destructors, before their members go.
  void Stop();

  // Fails what waits, and every later call, of this process alone.
  void Cancel(const Status& status) { Park(status); }

  // Ends all threads; not from one of them.
  virtual void Shutdown() { Stop(); }

  void OnMessage(Message message) final;
  void OnFailure(uint32_t peer, const Status& status) final;
  void OnTick() final;

 protected:
  // In the transport's thread: a message in its order; a tick.
  virtual Status Handle(Message message) = 0;
  virtual Status Tick(Clock::time_point now) = 0;
  // In any thread: the latch holds an error, of this endpoint or of another of the process.
  virtual void Failed(const Status& status) = 0;

  // Parks a failure and tells everybody. From any thread.
  void Fail(const Status& status);

  // Tells all peers of a failure, as the first endpoint that fails does by itself.
  void TellOfFailure(const Status& status);

  // Parks a failure that is this process's own affair.
  void Park(const Status& status);

  // Whether all flows to peers are open.
  bool is_connected() const { return connected_.load(std::memory_order_acquire); }

  // To all peers, with the highest priority; those that can't be reached are left out.
  void Broadcast(const Message& message) const { channels_.Broadcast(message); }

  // Whether a peer has said on all its flows that it is done.
  bool HasLeft(uint32_t peer) const;

  // That it has, and others need it.
  static Status LeftWhileOthersGoOn(uint32_t peer) {
    return UnavailableError("rank " + std::to_string(peer) +
                            " has ended its training while others go on: let all ranks end "
                            "together");
  }

  // That a message is none that `receiver` knows, or that it waits for.
  static Status Unexpected(const Header& header, const std::string& receiver) {
    return InvalidArgumentError(receiver + " got a message of " + NameOf(header.kind) +
                                " from rank " + std::to_string(header.sender) +
                                ", which it did not wait for");
  }

  // Whether what is sent on the flow to a peer goes beside it; see Transport. From any thread.
  bool GoesBesideFlow(uint32_t peer, uint8_t priority) const {
    return transport_ != nullptr && transport_->GoesBesideFlow(peer, priority);
  }

  // Sends on the flow to a peer. From any thread.
  Status Send(uint32_t peer, Precedence precedence, Message message);

  Status error() const { return errors_->status(); }
  std::string Me() const { return "rank " + std::to_string(options_.rank); }
  const Options& options() const { return options_; }

 private:
  const Options options_;
  const std::shared_ptr<ErrorLatch> errors_;
  std::unique_ptr<Transport> transport_;
  ChannelTable channels_;
  std::atomic<bool> connected_{false};
  SequenceCheck sequences_;  // of the transport's thread
  // Of the transport's thread: peers that can't be reached, and since when. Those that had left get
  // a moment to have said so: their last words come by another connection.
  std::map<uint32_t, std::pair<Status, Clock::time_point>> lost_;

  bool HasLeftLocked(uint32_t peer) const;
  bool HasTold() const;
  void NoteFailed(uint32_t peer);

  mutable std::mutex mutex_;
  std::condition_variable left_;
  std::map<uint32_t, size_t> farewells_;  // Guarded by mutex_; by peer, flows that ended.
  std::set<uint32_t> failed_;  // Guarded by mutex_; peers that gave up or can't be reached.
  bool has_told_ = false;      // Guarded by mutex_; peers, that this endpoint has failed.
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ENDPOINT_H_
