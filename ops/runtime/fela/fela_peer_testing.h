// Workers in one process that send each other Parameter Chunks, for tests.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_PEER_TESTING_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_PEER_TESTING_H_

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_peer.h"
#include "ops/runtime/net/fake_peers.h"

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
class FelaPeers : public FakePeers<FelaPeer> {
 public:
  static constexpr std::chrono::milliseconds kDeadline{20'000};

  explicit FelaPeers(uint32_t size, uint64_t iterations = 2,
                     std::chrono::milliseconds deadline = kDeadline)
      : FakePeers(size, [=](uint32_t rank) {
          return std::make_shared<FelaPeer>(Endpoint::Options{rank, size, deadline}, iterations,
                                            std::make_shared<ErrorLatch>());
        }) {}

  Status Put(uint32_t rank, const FelaChunkName& name) {
    FelaTensors tensors;
    for (const std::string& text : ContentOf(name)) {
      tensors.push_back(Payload::Copy(text));
    }
    return peer(rank).Put(name, std::move(tensors));
  }

  std::future<Taken> Begin(uint32_t rank, const std::vector<FelaPeer::Wanted>& wanted) {
    auto promise = std::make_shared<std::promise<Taken>>();
    peer(rank).Take(wanted, [promise](const Status& status, std::vector<FelaTensors> chunks) {
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
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_PEER_TESTING_H_
