// Workers in one process that send each other Parameter Chunks, for tests.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_PEER_TESTING_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_PEER_TESTING_H_

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_peer.h"
#include "ops/runtime/net/fake_network.h"

namespace trepak {

// What a chunk holds, made of its name: some tensors, some of them empty.
inline std::vector<std::string> ContentOf(const FelaChunkName& name) {
  std::seed_seq seed{static_cast<uint32_t>(name.iteration), name.token,
                     static_cast<uint32_t>(name.kind)};
  std::mt19937 random(seed);
  std::vector<std::string> texts(1 + random() % 4);
  for (std::string& text : texts) {
    text.resize(random() % 3 == 0 ? 0 : random() % 20000);
    for (char& letter : text) {
      letter = static_cast<char>(random());
    }
  }
  return texts;
}

struct Taken {
  Status status;
  std::vector<FelaTensors> chunks;

  std::string message() const { return std::string(status.message()); }

  std::vector<std::string> Content(size_t chunk) const {
    std::vector<std::string> texts;
    for (const Payload& tensor : chunks.at(chunk)) {
      texts.emplace_back(tensor.view());
    }
    return texts;
  }
};

// Thread safety: as FelaPeer.
class FelaPeers {
 public:
  static constexpr std::chrono::milliseconds kDeadline{20'000};

  explicit FelaPeers(uint32_t size, uint64_t iterations = 2,
                     std::chrono::milliseconds deadline = kDeadline) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      addresses_.push_back("peer " + std::to_string(rank));
      peers_.push_back(std::make_shared<FelaPeer>(Endpoint::Options{rank, size, deadline},
                                                  iterations, std::make_shared<ErrorLatch>()));
      peers_[rank]->Attach(network.Make(addresses_[rank], peers_[rank].get()));
    }
    for (auto& peer : peers_) {
      EXPECT_EQ(peer->Connect(addresses_, {0}), OkStatus());
    }
  }

  ~FelaPeers() {
    for (auto& peer : peers_) {
      peer->Cancel(CancelledError("the test is over"));
      peer->Shutdown();
    }
  }

  Status Put(uint32_t rank, const FelaChunkName& name) {
    FelaTensors tensors;
    for (const std::string& text : ContentOf(name)) {
      tensors.push_back(Payload::Copy(text));
    }
    return peers_[rank]->Put(name, std::move(tensors));
  }

  std::future<Taken> Begin(uint32_t rank, const std::vector<FelaPeer::Wanted>& wanted) {
    auto promise = std::make_shared<std::promise<Taken>>();
    peers_[rank]->Take(wanted, [promise](const Status& status, std::vector<FelaTensors> chunks) {
      promise->set_value({status, std::move(chunks)});
    });
    return promise->get_future();
  }

  static bool IsOver(const std::future<Taken>& future) {
    return future.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
  }

  static Taken End(std::future<Taken> future) {
    return future.wait_for(2 * kDeadline) == std::future_status::ready
               ? future.get()
               : Taken{InternalError("it never ended"), {}};
  }

  Taken Take(uint32_t rank, const std::vector<FelaPeer::Wanted>& wanted) {
    return End(Begin(rank, wanted));
  }

  // A rank dies.
  void Kill(uint32_t rank) {
    network.Cut(addresses_[rank]);
    peers_[rank]->Cancel(CancelledError("this rank was killed"));
  }

  FelaPeer& peer(uint32_t rank) { return *peers_[rank]; }
  std::shared_ptr<FelaPeer> shared_peer(uint32_t rank) { return peers_[rank]; }

  // Until all that was sent has been handled.
  void Settle() const {
    while (!network.Idle()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  FakeNetwork network;  // outlives the ranks

 private:
  std::vector<std::string> addresses_;
  std::vector<std::shared_ptr<FelaPeer>> peers_;
};

// Says what it likes to one endpoint, which is rank 0.
template <typename Kind>
class Liar : public Transport::Receiver {
 public:
  // `rank`: the one that it has; others are not there.
  Liar(std::shared_ptr<Kind> to, uint32_t rank) : heard_by(std::move(to)), rank_(rank) {
    heard_by->Attach(network_.Make("honest", heard_by.get()));
    transport_ = network_.Make("liar", this);
    std::vector<std::string> addresses(rank);
    addresses.emplace_back("liar");
    EXPECT_EQ(heard_by->Connect(addresses, {0}), OkStatus());
    EXPECT_EQ(transport_->Open({0, 0, 0, "honest"}, std::chrono::milliseconds(100)), OkStatus());
  }
  ~Liar() override {
    heard_by->Cancel(CancelledError("the test is over"));
    heard_by->Shutdown();
    transport_->Stop();
  }

  void Say(Message message) {
    message.header.sender = rank_;
    message.header.sequence = next_++;
    EXPECT_EQ(transport_->Send(0, 0, std::move(message)), OkStatus());
  }

  void Settle() const {
    while (!network_.Idle()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void OnMessage(Message) override {}
  void OnFailure(uint32_t, const Status&) override {}
  void OnTick() override {}

 private:
  FakeNetwork network_;

 public:
  const std::shared_ptr<Kind> heard_by;

 private:
  const uint32_t rank_;
  std::unique_ptr<Transport> transport_;
  uint64_t next_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_PEER_TESTING_H_
