// For tests of what strangers can do to a transport that listens.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMTP_LISTENING_TEST_H_
#define TREPAK_OPS_RUNTIME_NET_ZMTP_LISTENING_TEST_H_

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "ops/runtime/net/zmq_transport.h"
#include "ops/runtime/net/zmtp_stranger.h"

namespace trepak {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using zmtp::Stranger;

constexpr milliseconds kPatience{30'000};

class Sink : public Transport::Receiver {
 public:
  void OnMessage(Message message) override {
    ++messages;  // before anybody can know that it has come
    if (message.header.key == 7) {
      arrived.set_value();
    }
  }
  void OnFailure(uint32_t, const Status&) override { ++failures; }
  void OnTick() override {}

  std::promise<void> arrived;
  std::atomic<int> messages{0};
  std::atomic<int> failures{0};
};

// A transport that listens; with and without encryption.
class ListeningTest : public testing::TestWithParam<bool> {
 protected:
  ListeningTest() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    Start(1, &receiver_, &listening_);
    address_ = listening_->address();
  }

  void Start(uint32_t rank, Sink* sink, std::unique_ptr<ZmqTransport>* transport) const {
    ZmqTransport::Options options;
    options.rank = rank;
    options.host = "127.0.0.1";
    options.secret = secret_;
    options.encrypt = GetParam();
    const Status status = ZmqTransport::Start(options, sink, transport);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Has a peer connect and be heard; returns how long it took.
  milliseconds ConnectAPeer() {
    Sink sink;
    std::unique_ptr<ZmqTransport> peer;
    const Clock::time_point begin = Clock::now();
    Start(0, &sink, &peer);
    const Status status = peer->Open({1, 0, 0, address_}, kPatience);
    EXPECT_TRUE(status.ok()) << status;
    Message message;
    message.header.kind = KindOf("test", 1);
    message.header.key = 7;
    message.payload = Payload::Allocate(1'000'000);
    EXPECT_TRUE(peer->Send(1, 0, message).ok());
    EXPECT_EQ(receiver_.arrived.get_future().wait_for(kPatience), std::future_status::ready);
    return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  }

  // Whether the listener ends the connection in time.
  static bool IsEnded(Stranger* stranger, milliseconds patience = kPatience) {
    const Clock::time_point deadline = Clock::now() + patience;
    while (!stranger->Ended()) {
      if (Clock::now() > deadline) {
        return false;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  // Whether it hears that before the connection is ended.
  static bool Hears(Stranger* stranger, const std::string& what) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    bool ended = false;
    while (stranger->heard().find(what) == std::string::npos && !ended && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
      ended = stranger->Ended();
    }
    return stranger->heard().find(what) != std::string::npos;
  }

  // Says it all, or until the connection is ended.
  static void Insist(Stranger* stranger, const std::string& bytes) {
    for (size_t said = 0; said < bytes.size() && !stranger->Ended();) {
      said += stranger->Say(bytes.substr(said, 1 << 18));
    }
  }

  const Secret secret_ = MakeSecret();
  Sink receiver_;
  std::unique_ptr<ZmqTransport> listening_;
  std::string address_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMTP_LISTENING_TEST_H_
