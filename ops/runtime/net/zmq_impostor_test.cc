// What a process that has taken a receiver's place can do to a sender: it gets no memory of it.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "ops/runtime/net/resident_memory.h"
#include "ops/runtime/net/zmtp_listening_test.h"

namespace trepak {
namespace {

// Listens, does not know the secret, takes any ticket for a good one, and goes on speaking to each
// who connects for as long as it is heard.
class Impostor {
 public:
  explicit Impostor(std::string more)
      : listening_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(where);
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(listening_, address, size), 0);
    EXPECT_EQ(listen(listening_, 16), 0);
    getsockname(listening_, address, &size);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(where.sin_port));
    thread_ = std::thread([this, more = std::move(more)] {
      while (!over_) {
        Stranger sender(accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK));
        if (sender.is_valid()) {
          ++connections_;
          Speak(&sender, more);
        }
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  ~Impostor() {
    over_ = true;
    thread_.join();
    close(listening_);
  }

  const std::string& address() const { return address_; }
  int connections() const { return connections_; }
  uint64_t said() const { return said_; }

 private:
  void Speak(Stranger* sender, const std::string& more) {
    sender->Say(zmtp::Greeting("PLAIN"));
    Await(sender, "HELLO");
    sender->Say(zmtp::Command("WELCOME", ""));
    Await(sender, "INITIATE");
    sender->Say(zmtp::Command("READY", zmtp::Properties()));
    for (size_t at = 0; !over_ && !sender->Ended();) {
      const size_t told = sender->Say(more.substr(at, 1 << 16));
      at = (at + told) % more.size();
      said_ += told;
    }
  }

  static void Await(Stranger* sender, const std::string& what) {
    const auto deadline = Clock::now() + milliseconds(1000);
    while (Clock::now() < deadline && sender->heard().find(what) == std::string::npos &&
           !sender->Ended()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  const int listening_;
  std::string address_;
  std::atomic<bool> over_{false};
  std::atomic<int> connections_{0};
  std::atomic<uint64_t> said_{0};
  std::thread thread_;
};

class ImpostorTest : public ListeningTest {};

INSTANTIATE_TEST_SUITE_P(Flows, ImpostorTest, testing::Values(false),
                         [](const auto&) { return std::string("Plain"); });

// An encrypted flow asks its receiver for a proof before it listens to anything.
TEST_P(ImpostorTest, GetsNoMemoryOfASender) {
  std::string parts;
  for (int i = 0; i < 1000; ++i) {
    parts += zmtp::Frame(zmtp::kMore, std::string(1000, 'x'));
  }
  const Impostor impostor(parts);
  Sink sink;
  std::unique_ptr<ZmqTransport> sender;
  Start(0, &sink, &sender);
  ForgetPeak();
  const int64_t before = Resident("VmRSS");
  const Status status = sender->Open({1, 0, 0, impostor.address()}, milliseconds(6000));
  const int64_t peak = Resident("VmHWM") - before;
  std::printf("%d connections, %.1f MiB said, %.1f MiB held at most: %s\n", impostor.connections(),
              impostor.said() / 1048576.0, peak / 1048576.0, std::string(status.message()).c_str());
  EXPECT_NE(status.message().find("says more than a rank of this job"), std::string::npos)
      << status;
  EXPECT_GT(impostor.connections(), 1) << "it is tried again";
  EXPECT_GT(impostor.said(), ZmqGate::kMostProofBytes);
  EXPECT_EQ(sink.failures, 0);
  if (kMemoryIsOurs) {
    EXPECT_LT(peak, 24 << 20);
  }
}

}  // namespace
}  // namespace trepak
