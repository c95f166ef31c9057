// A second way for flows: UCX, between ranks that can use it.

#ifndef TREPAK_OPS_RUNTIME_NET_UCX_TRANSPORT_H_
#define TREPAK_OPS_RUNTIME_NET_UCX_TRANSPORT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "ops/runtime/net/transport.h"
#include "ops/runtime/net/ucx_flow.h"
#include "ops/runtime/net/ucx_offer.h"
#include "ops/runtime/net/ucx_worker.h"

namespace trepak {

// Opens each flow over another transport first, which proves who is there, and stays: it notices
// that a peer ends, and gives ticks. Then the ends agree on UCX (see ucx_offer.h), and all messages
// of the flow go that way; where they don't agree, all go over the other transport.
//
// Thread safety: as Transport says. UCX has a thread of its own, the other transport its own; both
// call the receiver, under receiving_. Work is handed to UCX's under mutex_. Owns the other
// transport; the receiver must outlive it.
class UcxTransport : public Transport, private Transport::Receiver, private UcxWorker::Owner {
 public:
  using Receiver = Transport::Receiver;

  struct Options {
    uint32_t rank = 0;
    // Goes over UCX in memory shared with ranks of this host, if UCX can copy large messages from
    // one process to the other at once; without, to all ranks, and fails where it can't. What was
    // measured is in docs/sven.md. Without that copying UCX took up to 60 ms for 8 MiB, far more
    // than flows. RDMA was not measured.
    bool only_where_faster = true;
    // Then nothing may go over a network: UCX has no encryption.
    bool encrypt = false;
  };
  // Makes the other transport, for that receiver.
  using MakeInner = std::function<Status(Receiver*, std::unique_ptr<Transport>*)>;

  static Status Start(const Options& options, Receiver* receiver, const MakeInner& make_inner,
                      std::unique_ptr<UcxTransport>* transport);
  ~UcxTransport() override;

  // The other transport's, with a mark where this process has UCX: peers then know whom to ask.
  std::string address() const override;
  Status Open(const FlowTarget& target, std::chrono::milliseconds deadline) override;
  Status Send(uint32_t peer, uint8_t priority, Message message) override;
  void Stop() override;
  bool GoesBesideFlow(uint32_t peer, uint8_t priority) const override;

  // What came over UCX and was no message of a flow.
  uint64_t refused() const { return refused_; }

 private:
  using FlowId = std::pair<uint8_t, uint32_t>;  // priority first: served in this order
  enum class Way { kUndecided, kInner, kUcx };
  struct Route {
    Way way = Way::kUndecided;
    Status status;
    uint64_t token = 0;  // of what goes over UCX; it stays where it is: peers read it there
    bool is_on_this_host = false;
  };
  struct Incoming {
    uint32_t peer = 0;
    uint8_t priority = 0;
    UcxOffer offer;
  };

  UcxTransport(const Options& options, Receiver* receiver)
      : options_(options), receiver_(receiver) {}

  Status SetUp(const MakeInner& make_inner);
  // Whether a flow is to go over UCX if it can.
  Status Wants(const FlowTarget& target, bool* wants) const;
  // Asks the peer to go over UCX, and waits for its answer.
  Status Agree(const FlowTarget& target, std::chrono::steady_clock::time_point deadline);

  // Of the other transport's thread.
  void OnMessage(Message message) override;
  void OnFailure(uint32_t peer, const Status& status) override;
  void OnTick() override;

  // All of these are for UCX's thread.
  void Loop();
  bool TakeWork();  // whether there was any
  bool SendQueued();
  void Deliver();
  void Wait();
  void Accept(const Incoming& incoming);
  void TakeAnswer(const Message& message);
  bool IsOver();
  bool HasDrained() const;
  uint64_t SentMessages() const;
  bool Expects(const Header& header) override;
  void OnArrival(uint64_t number, Message message) override;
  void OnRefusal(const Status& why) override;
  void OnLost(const Header& header, const Status& status) override;
  void OnSent(uint64_t label) override;
  void OnBroken(uint32_t peer, const Status& status) override;

  // The flow that has offered a token, and got no answer yet. Requires mutex_.
  std::map<FlowId, Route>::iterator Undecided(uint64_t token);
  // Whether some flow has offered a token. Requires mutex_.
  bool HasOffered(uint64_t token) const;
  // How a flow is to go. Requires mutex_.
  void Settle(Route* route, Way way, const Status& status);
  // Requires mutex_.
  void Wake();
  // That all flows to a peer have failed. Requires mutex_.
  void Break(uint32_t peer, const Status& status);

  const Options options_;
  Receiver* const receiver_;
  std::unique_ptr<Transport> inner_;
  int wake_fd_ = -1;
  std::atomic<uint64_t> refused_{0};

  // Of UCX's thread alone, after Start. Null where there is no UCX.
  std::unique_ptr<UcxWorker> worker_;
  std::string my_address_;  // constant after Start; empty where there is no UCX
  std::string host_;        // constant after Start: the other transport's
  std::map<FlowId, UcxSender> senders_;
  std::map<uint64_t, UcxSequence> sequences_;  // by token
  std::deque<Message> arrived_;
  std::deque<Message> answers_;
  std::deque<std::pair<uint32_t, Status>> broken_;
  std::set<uint32_t> gone_;  // peers that can't be reached any more
  uint64_t sent_before_ = 0;
  std::chrono::steady_clock::time_point moved_at_;  // when something was sent, if it is to end

  std::mutex receiving_;  // held while the receiver is called; taken before mutex_

  mutable std::mutex mutex_;
  std::condition_variable settled_;
  // All guarded by mutex_.
  std::map<FlowId, Route> routes_;
  std::deque<Incoming> offers_;
  std::deque<std::pair<FlowId, Message>> to_send_;
  std::set<uint32_t> lost_;
  std::map<uint32_t, Status> unreachable_;  // peers that UCX has no way to, and why
  bool was_ignored_ = false;                // by a peer that was asked and could do without UCX
  bool stopping_ = false;
  bool awake_ = false;  // the thread looks for work before it waits again

  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UCX_TRANSPORT_H_
