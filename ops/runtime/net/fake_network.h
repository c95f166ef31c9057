// A network inside one process, for tests: it can lose, double, swap and delay messages, and cut.

#ifndef TREPAK_OPS_RUNTIME_NET_FAKE_NETWORK_H_
#define TREPAK_OPS_RUNTIME_NET_FAKE_NETWORK_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "ops/runtime/net/transport.h"

namespace trepak {

// Thread safety: every method may be called from any thread. Must outlive its transports.
class FakeNetwork {
 public:
  enum class Fate { kArrive, kLose, kDouble, kSwapWithNext };
  // Decides on a message to the transport with that address.
  using Fault = std::function<Fate(const std::string& to, const Message& message)>;

  void SetFault(Fault fault) {
    std::lock_guard<std::mutex> lock(mutex_);
    fault_ = std::move(fault);
  }

  // No transport ticks more often: by default each does so whenever it has something to do.
  void SetTick(std::chrono::milliseconds tick) { tick_ = tick; }

  // Makes a transport of that address; `receiver` must outlive it.
  std::unique_ptr<Transport> Make(const std::string& address, Transport::Receiver* receiver) {
    return std::make_unique<FakeTransport>(this, address, receiver);
  }

  // Messages of a kind that were sent so far.
  size_t Sent(MessageKind kind) {
    std::lock_guard<std::mutex> lock(mutex_);
    return sent_[kind];
  }

  // Whether everything that was sent has been handled, and what was sent in answer too.
  bool Idle() const { return under_way_ == 0; }

  // Cuts a transport off: all who have flows to it see a failure.
  void Cut(const std::string& address) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [name, transport] : transports_) {
      transport->LosePeer(address);
    }
  }

 private:
  using FlowName = std::tuple<std::string, uint32_t, uint8_t>;  // to, from, priority

  class FakeTransport : public Transport {
   public:
    FakeTransport(FakeNetwork* network, std::string address, Receiver* receiver)
        : network_(network), address_(std::move(address)), receiver_(receiver) {
      std::lock_guard<std::mutex> lock(network_->mutex_);
      network_->transports_[address_] = this;
      thread_ = std::thread([this] { Loop(); });
    }
    ~FakeTransport() override { Stop(); }

    std::string address() const override { return address_; }

    Status Open(const FlowTarget& target, std::chrono::milliseconds) override {
      std::lock_guard<std::mutex> lock(network_->mutex_);
      if (network_->transports_.count(target.address) == 0) {
        return DeadlineExceededError("nobody listens at " + target.address);
      }
      peers_[{target.peer, target.priority}] = target.address;
      return OkStatus();
    }

    Status Send(uint32_t peer, uint8_t priority, Message message) override {
      std::lock_guard<std::mutex> lock(network_->mutex_);
      const auto found = peers_.find({peer, priority});
      if (found == peers_.end()) {
        return UnavailableError("there is no flow to rank " + std::to_string(peer));
      }
      network_->Deliver(found->second, std::move(message));
      return OkStatus();
    }

    void Stop() override {
      {
        std::lock_guard<std::mutex> lock(network_->mutex_);
        network_->transports_.erase(address_);
      }
      {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
      }
      changed_.notify_one();
      if (thread_.joinable()) {
        thread_.join();
      }
    }

    void Take(std::function<void(Receiver*)> event) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ++network_->under_way_;
        events_.push_back(std::move(event));
      }
      changed_.notify_one();
    }

    // Requires the network's mutex.
    void LosePeer(const std::string& address) {
      for (auto it = peers_.begin(); it != peers_.end();) {
        if (it->second != address) {
          ++it;
          continue;
        }
        const uint32_t peer = it->first.first;
        Take([peer](Receiver* receiver) {
          receiver->OnFailure(peer, UnavailableError("the connection to rank " +
                                                     std::to_string(peer) + " was lost"));
        });
        it = peers_.erase(it);
      }
    }

   private:
    void Loop() {
      std::chrono::steady_clock::time_point ticked;
      std::unique_lock<std::mutex> lock(mutex_);
      while (!stopping_) {
        if (events_.empty()) {
          changed_.wait_for(lock, std::chrono::milliseconds(10));
        }
        std::deque<std::function<void(Receiver*)>> events;
        events.swap(events_);
        lock.unlock();
        for (auto& event : events) {
          event(receiver_);
          --network_->under_way_;
        }
        if (const auto now = std::chrono::steady_clock::now();
            now - ticked >= network_->tick_.load()) {
          ticked = now;
          receiver_->OnTick();
        }
        lock.lock();
      }
    }

    FakeNetwork* const network_;
    const std::string address_;
    Receiver* const receiver_;
    std::map<std::pair<uint32_t, uint8_t>, std::string> peers_;  // Guarded by the network's mutex.
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void(Receiver*)>> events_;  // Guarded by mutex_.
    bool stopping_ = false;                              // Guarded by mutex_.
    std::thread thread_;
  };

  // Requires mutex_.
  void Deliver(const std::string& to, Message message) {
    ++sent_[message.header.kind];
    const FlowName flow(to, message.header.sender, message.header.priority);
    const Fate fate = fault_ ? fault_(to, message) : Fate::kArrive;
    if (fate == Fate::kLose) {
      return;
    }
    if (fate == Fate::kSwapWithNext) {
      held_[flow] = std::move(message);
      return;
    }
    Arrive(to, message);
    if (fate == Fate::kDouble) {
      Arrive(to, message);
    }
    const auto held = held_.find(flow);
    if (held != held_.end()) {
      Arrive(to, held->second);
      held_.erase(held);
    }
  }

  void Arrive(const std::string& to, const Message& message) {
    const auto found = transports_.find(to);
    if (found == transports_.end()) {
      return;
    }
    // As over a wire: the receiver gets memory of its own.
    const Message copy{message.header, Payload::Copy(message.payload.view())};
    found->second->Take([copy](Transport::Receiver* receiver) { receiver->OnMessage(copy); });
  }

  std::atomic<size_t> under_way_{0};
  std::atomic<std::chrono::milliseconds> tick_{std::chrono::milliseconds(0)};
  std::mutex mutex_;
  // All guarded by mutex_.
  Fault fault_;
  std::map<MessageKind, size_t> sent_;
  std::map<std::string, FakeTransport*> transports_;
  std::map<FlowName, Message> held_;  // until the next one of its flow has come
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_FAKE_NETWORK_H_
