// Each bound on connections that have proved nothing, and what passes it.

#include "ops/runtime/net/zmq_gate.h"

#include <algorithm>
#include <array>
#include <future>
#include <vector>

#include "ops/runtime/net/zmtp_listening_test.h"

namespace trepak {
namespace {

using ZmqGateTest = ListeningTest;

INSTANTIATE_TEST_SUITE_P(Flows, ZmqGateTest, testing::Bool(), [](const auto& flows) {
  return std::string(flows.param ? "Encrypted" : "Plain");
});

TEST_P(ZmqGateTest, MorePeersThanMayStandBeforeItAllGetIn) {
  constexpr size_t kFlows = ZmqGate::kMostUnproven + 64;
  constexpr size_t kPeers = 2;  // each has 256 priorities
  Sink sink;
  std::array<std::unique_ptr<ZmqTransport>, kPeers> peers;
  for (size_t i = 0; i < kPeers; ++i) {
    Start(static_cast<uint32_t>(10 + i), &sink, &peers[i]);
  }
  std::vector<std::future<Status>> opened;
  for (size_t i = 0; i < kFlows; ++i) {
    opened.push_back(std::async(std::launch::async, [&, i] {
      return peers[i % kPeers]->Open({1, static_cast<uint8_t>(i / kPeers), 0, address_}, kPatience);
    }));
  }
  for (std::future<Status>& one : opened) {
    const Status status = one.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(sink.failures, 0);
}

TEST_P(ZmqGateTest, ConnectionsThatProveNothingAreBounded) {
  std::vector<Stranger> crowd;
  for (size_t i = 0; i < 3 * ZmqGate::kMostUnproven; ++i) {
    crowd.emplace_back(address_);
    if (i % 32 == 0) {  // the kernel makes few wait until they are accepted
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  const auto ended = [&] {
    return static_cast<size_t>(std::count_if(crowd.begin(), crowd.end(),
                                             [](Stranger& stranger) { return stranger.Ended(); }));
  };
  const Clock::time_point begin = Clock::now();
  while (ended() < 2 * ZmqGate::kMostUnproven && Clock::now() - begin < kPatience) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(ended(), 2 * ZmqGate::kMostUnproven) << "no more than these";
  EXPECT_LT(Clock::now() - begin, ZmqGate::kProofDeadline);
  // The rest have their time, and no more.
  while (ended() < crowd.size() && Clock::now() - begin < kPatience) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(ended(), crowd.size());
  EXPECT_GE(Clock::now() - begin, ZmqGate::kProofDeadline - milliseconds(500));
}

TEST_P(ZmqGateTest, LongFramesEndAConnection) {
  const std::string greeting = zmtp::Greeting(GetParam() ? "CURVE" : "PLAIN");
  Stranger too_long(address_);
  Insist(&too_long, greeting + zmtp::FrameHeader(zmtp::kCommand, kMostFrameBytes + 1));
  EXPECT_TRUE(IsEnded(&too_long, ZmqGate::kProofDeadline / 2));
  Stranger longest(address_);
  Insist(&longest, greeting + zmtp::FrameHeader(zmtp::kCommand, kMostFrameBytes));
  EXPECT_FALSE(IsEnded(&longest, milliseconds(200))) << "it has begun a frame that may be";
  Insist(&longest, std::string(2 * ZmqGate::kMostProofBytes, 'x'));
  EXPECT_TRUE(IsEnded(&longest, ZmqGate::kProofDeadline / 2)) << "no proof is so long";
}

TEST_P(ZmqGateTest, TicketsOpenPlainConnectionsOnce) {
  const Ticket ticket = MakeTicket(secret_, address_);
  const std::string said = zmtp::PlainHello(ticket.number, ticket.proof);
  Stranger first(address_);
  Insist(&first, said);
  EXPECT_EQ(Hears(&first, "WELCOME"), !GetParam());
  Insist(&first, zmtp::Initiate());
  EXPECT_EQ(Hears(&first, "READY"), !GetParam()) << "what follows shows nothing, otherwise";
  Stranger second(address_);
  Insist(&second, said);
  // ZeroMQ 4.3.4 misspells ERROR.
  EXPECT_EQ(Hears(&second, "RROR\003400"), !GetParam()) << "it was used before";
  EXPECT_EQ(second.heard().find("WELCOME"), std::string::npos);
  EXPECT_EQ(receiver_.messages, 0);
}

// Passes bytes on between two ends, and keeps them.
class Eavesdropper {
 public:
  explicit Eavesdropper(const std::string& to) : listening_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(where);
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(listening_, address, size), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
    getsockname(listening_, address, &size);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(where.sin_port));
    thread_ = std::thread([this, to] {
      Stranger near(accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK));
      Stranger far(to);
      size_t told_near = 0;
      size_t told_far = 0;
      while (!over_ && !near.Ended() && !far.Ended()) {
        told_far += far.Say(near.heard().substr(told_far));
        told_near += near.Say(far.heard().substr(told_near));
        std::this_thread::sleep_for(milliseconds(1));
      }
      heard_ = near.heard();
    });
  }
  ~Eavesdropper() { close(listening_); }

  const std::string& address() const { return address_; }
  const std::string& Heard() {
    over_ = true;
    thread_.join();
    return heard_;
  }

 private:
  const int listening_;
  std::string address_;
  std::string heard_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// A plain flow does not open by way of another address: see ProofCheckTest.
class EncryptedFlowsTest : public ListeningTest {};
INSTANTIATE_TEST_SUITE_P(Flows, EncryptedFlowsTest, testing::Values(true),
                         [](const auto&) { return std::string("Encrypted"); });

TEST_P(EncryptedFlowsTest, TellEavesdroppersNothing) {
  const std::string text = "what a rank tells another";
  Eavesdropper between(address_);
  {
    Sink sink;
    std::unique_ptr<ZmqTransport> peer;
    Start(0, &sink, &peer);
    ASSERT_TRUE(peer->Open({1, 0, 0, between.address()}, kPatience).ok());
    Message message;
    message.header.kind = KindOf("test", 1);
    message.header.key = 7;
    message.payload = Payload::Copy(text);
    ASSERT_TRUE(peer->Send(1, 0, message).ok());
    ASSERT_EQ(receiver_.arrived.get_future().wait_for(kPatience), std::future_status::ready);
  }
  const std::string& heard = between.Heard();
  EXPECT_GT(heard.size(), text.size());
  EXPECT_EQ(heard.find(text), std::string::npos);
  EXPECT_EQ(heard.find("TRPK"), std::string::npos) << "a header of trepak's";
}

}  // namespace
}  // namespace trepak
