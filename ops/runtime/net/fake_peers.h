// Endpoints of one kind on a network inside one process, for tests.

#ifndef TREPAK_OPS_RUNTIME_NET_FAKE_PEERS_H_
#define TREPAK_OPS_RUNTIME_NET_FAKE_PEERS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/net/endpoint.h"
#include "ops/runtime/net/fake_network.h"

namespace trepak {

// A job of ranks each of which has a peer, "peer 0" and so on, with flows to all.
//
// Thread safety: as the peers.
template <typename Peer>
class FakePeers {
 public:
  // `make`: makes a rank's.
  FakePeers(uint32_t size, const std::function<std::shared_ptr<Peer>(uint32_t rank)>& make) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      addresses_.push_back("peer " + std::to_string(rank));
      peers_.push_back(make(rank));
      peers_[rank]->Attach(network.Make(addresses_[rank], peers_[rank].get()));
    }
    for (auto& peer : peers_) {
      EXPECT_EQ(peer->Connect(addresses_, {0}), OkStatus());
    }
  }

  ~FakePeers() {
    for (auto& peer : peers_) {
      peer->Cancel(CancelledError("the test is over"));
      peer->Shutdown();
    }
  }

  // A rank dies.
  void Kill(uint32_t rank) {
    network.Cut(addresses_[rank]);
    peers_[rank]->Cancel(CancelledError("this rank was killed"));
  }

  Peer& peer(uint32_t rank) { return *peers_[rank]; }
  std::shared_ptr<Peer> shared_peer(uint32_t rank) { return peers_[rank]; }

  // Until all that was sent has been handled.
  void Settle() const {
    while (!network.Idle()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  FakeNetwork network;  // outlives the ranks

 private:
  std::vector<std::string> addresses_;
  std::vector<std::shared_ptr<Peer>> peers_;
};

// Says what it likes to the endpoint of rank 0, which it does not know to be a liar.
template <typename Kind>
class Liar {
 public:
  // `rank`: the one that it has; other ranks are not there.
  explicit Liar(std::shared_ptr<Kind> to, uint32_t rank = 1) : to_(std::move(to)), rank_(rank) {
    to_->Attach(network_.Make("honest", to_.get()));
    transport_ = network_.Make("liar", &deaf_);
    std::vector<std::string> addresses(rank);
    addresses.emplace_back("liar");
    EXPECT_EQ(to_->Connect(addresses, {0}), OkStatus());
    EXPECT_EQ(transport_->Open({0, 0, 0, "honest"}, std::chrono::milliseconds(100)), OkStatus());
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;
  virtual ~Liar() {
    to_->Cancel(CancelledError("the test is over"));
    to_->Shutdown();
    transport_->Stop();
  }

  void Say(Message message) {
    message.header.sender = rank_;
    message.header.sequence = next_++;
    EXPECT_EQ(transport_->Send(0, 0, std::move(message)), OkStatus());
  }

  // Until all that was said has been handled.
  void Settle() const {
    while (!network_.Idle()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Kind& to() { return *to_; }

 private:
  // Not the liar itself: its transport calls this until the end, when a subclass is gone.
  class Deaf final : public Transport::Receiver {
   public:
    void OnMessage(Message) override {}
    void OnFailure(uint32_t, const Status&) override {}
    void OnTick() override {}
  };

  FakeNetwork network_;  // outlives those on it
  Deaf deaf_;
  const std::shared_ptr<Kind> to_;
  const uint32_t rank_;
  std::unique_ptr<Transport> transport_;
  uint64_t next_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_FAKE_PEERS_H_
