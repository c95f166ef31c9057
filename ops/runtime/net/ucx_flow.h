// Both ends of a flow over UCX: what waits to be sent, and what has come too early.

#ifndef TREPAK_OPS_RUNTIME_NET_UCX_FLOW_H_
#define TREPAK_OPS_RUNTIME_NET_UCX_FLOW_H_

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/ucx_worker.h"

namespace trepak {

// A queue in front of UCX: small orders first, numbered as they leave it. Thread safety: none.
class UcxSender {
 public:
  UcxSender(uint32_t peer, uint64_t token) : peer_(peer), token_(token) {}

  void Enqueue(Message message) {
    message.header.token = token_;
    const uint16_t order = message.header.order;
    queues_[order].push_back(std::move(message));
  }

  // Hands over what may leave; returns whether anything did. `label`: for UcxWorker::Send.
  bool Proceed(UcxWorker* worker, uint64_t label) {
    bool has_sent = false;
    // Counted first: what UCX sends at once has left before Send returns.
    for (; !queues_.empty() && inside_ < kMessagesInside; has_sent = true) {
      const auto first = queues_.begin();
      Message message = std::move(first->second.front());
      first->second.pop_front();
      if (first->second.empty()) {
        queues_.erase(first);
      }
      ++inside_;
      worker->Send(peer_, next_++, std::move(message), label);
    }
    return has_sent;
  }

  void OnSent() { --inside_; }
  void Drop() { queues_.clear(); }
  bool is_idle() const { return queues_.empty() && inside_ == 0; }
  uint64_t sent() const { return next_ - inside_; }

 private:
  // What UCX has can't be overtaken: as much as keeps it busy.
  static constexpr uint64_t kMessagesInside = 4;

  const uint32_t peer_;
  const uint64_t token_;
  uint64_t next_ = 0;
  uint64_t inside_ = 0;
  std::map<uint16_t, std::deque<Message>> queues_;  // by order; none is empty
};

// Puts what comes into the order in which it was sent: a large message is fetched while small ones
// that were sent behind it come. Thread safety: none.
class UcxSequence {
 public:
  UcxSequence(uint32_t peer, uint8_t priority) : peer_(peer), priority_(priority) {}

  uint32_t peer() const { return peer_; }

  // Appends to `due` what is due with this message; nothing if it came before.
  void Add(uint64_t number, Message message, std::deque<Message>* due) {
    if (number < next_) {
      return;
    }
    message.header.sender = peer_;
    message.header.priority = priority_;
    early_.emplace(number, std::move(message));
    for (; !early_.empty() && early_.begin()->first == next_; ++next_) {
      due->push_back(std::move(early_.begin()->second));
      early_.erase(early_.begin());
    }
  }

 private:
  const uint32_t peer_;
  const uint8_t priority_;
  uint64_t next_ = 0;
  std::map<uint64_t, Message> early_;  // by number
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UCX_FLOW_H_
