// What a transport over UCX does with UCX: connections to peers, messages with a number, a
// descriptor to wait for.

#ifndef TREPAK_OPS_RUNTIME_NET_UCX_WORKER_H_
#define TREPAK_OPS_RUNTIME_NET_UCX_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"
#include "ops/runtime/net/ucx_library.h"

namespace trepak {

// Thread safety: none, the transport's thread has it after Make. Owns what UCX has made; the owner
// must outlive it.
class UcxWorker {
 public:
  // Is told of what happens, from within Progress or the destructor; must not call the worker.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Whether a message with that header may come: it has a token that somebody was given. Memory
    // is taken for such ones only.
    virtual bool Expects(const Header& header) = 0;
    // Messages of one sender may arrive in another order than they were sent.
    virtual void OnArrival(uint64_t number, Message message) = 0;
    // What came was no message, or nobody's.
    virtual void OnRefusal(const Status& why) = 0;
    // One that was expected could not be fetched: `status` says why, without naming the sender.
    virtual void OnLost(const Header& header, const Status& status) = 0;
    // A message that Send was given with this label has left its memory, or never will.
    virtual void OnSent(uint64_t label) = 0;
    // A connection broke.
    virtual void OnBroken(uint32_t peer, const Status& status) = 0;
  };

  struct Options {
    bool in_memory_only = false;  // shared with other processes of this host
    uint32_t rank = 0;            // this process's, for errors
  };

  static Status Make(const Options& options, Owner* owner, std::unique_ptr<UcxWorker>* worker);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  // Ends what is under way; payloads of that are never freed.
  ~UcxWorker();

  // What a peer needs to connect to this one.
  const std::string& address() const { return address_; }

  // Connects to a peer, where there is no connection yet. UCX goes on with it during Progress.
  // Fails, naming the peer, where UCX has no way to it.
  Status Connect(uint32_t peer, std::string_view address, bool is_on_this_host);

  // Sends to a peer that is connected. The payload keeps its owner until OnSent.
  void Send(uint32_t peer, uint64_t number, Message message, uint64_t label);

  // Forgets that a connection is to be flushed: its peer is gone.
  void GiveUp(uint32_t peer);

  // Does what can be done; returns whether that was anything. Not all is done if it was.
  bool Progress();

  // Becomes readable when there is something to do, once Arm has returned true after Progress had
  // returned false; also at other times.
  int descriptor() const { return descriptor_; }
  bool Arm();

  // Whether all that was sent has arrived at connections that stand; begins to find out. Call it
  // again after Progress.
  bool HasFlushed();

 private:
  struct Connection {
    UcxWorker* worker = nullptr;
    uint32_t peer = 0;
    ucp_ep_h endpoint = nullptr;
    bool is_broken = false;
  };
  // What goes before a payload.
  struct Envelope {
    uint64_t number;
    HeaderBytes header;
  };
  struct Leaving {
    UcxWorker* worker;
    std::list<Leaving>::iterator self;
    uint64_t label;
    Message message;
    Envelope envelope;
  };
  struct Coming {
    UcxWorker* worker;
    std::list<Coming>::iterator self;
    uint64_t number;
    Message message;
  };

  UcxWorker(const UcxLibrary* ucx, const Options& options, Owner* owner)
      : ucx_(*ucx), options_(options), owner_(owner) {}

  Status SetUp();
  Status MakeContext();
  void KeepWhatPeersMayUse();
  Status Failed(const std::string& what, ucs_status_t status) const;
  ucs_status_t Receive(const void* header, size_t header_bytes, void* data, size_t bytes,
                       const ucp_am_recv_param_t& how);
  ucs_status_t Fetch(uint64_t number, const Header& header, void* data, size_t bytes);

  static ucs_status_t OnMessage(void* self, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* how);
  static void OnFetched(void* request, ucs_status_t status, size_t bytes, void* coming);
  static void OnLeft(void* request, ucs_status_t status, void* leaving);
  static void OnError(void* connection, ucp_ep_h endpoint, ucs_status_t status);

  const UcxLibrary& ucx_;
  const Options options_;
  Owner* const owner_;
  bool has_shared_memory_ = false;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  std::map<uint32_t, Connection> connections_;  // by peer; UCX has pointers to them
  std::map<uint32_t, void*> flushing_;          // by peer, UCX's request, null when it is over
  std::list<Leaving> leaving_;
  std::list<Coming> coming_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UCX_WORKER_H_
