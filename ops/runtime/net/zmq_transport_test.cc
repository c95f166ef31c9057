#include "ops/runtime/net/zmq_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <random>
#include <thread>

#include "ops/runtime/net/transport_testing.h"

namespace trepak {
namespace {

using testing::HasSubstr;

// Plain and encrypted. What holds for every transport is in transport_test.cc.
class ZmqTransportTest : public testing::TestWithParam<bool> {
 protected:
  ZmqTransportTest() {
    Start(0, secret_, &collectors_[0], &transports_[0]);
    Start(1, secret_, &collectors_[1], &transports_[1]);
  }

  static void Start(uint32_t rank, const Secret& secret, Collector* collector,
                    std::unique_ptr<ZmqTransport>* transport, bool encrypt = GetParam()) {
    ZmqTransport::Options options;
    options.rank = rank;
    options.host = "127.0.0.1";
    options.secret = secret;
    options.silence = kDeadline;
    options.dscp = 26;
    options.encrypt = encrypt;
    const Status status = ZmqTransport::Start(options, collector, transport);
    ASSERT_TRUE(status.ok()) << status;
  }

  Status Open(uint8_t priority = 0) {
    return transports_[0]->Open({1, priority, 46, transports_[1]->address()}, kDeadline);
  }

  const Secret secret_ = MakeSecret();
  Collector collectors_[2];
  std::unique_ptr<ZmqTransport> transports_[2];
};

INSTANTIATE_TEST_SUITE_P(Flows, ZmqTransportTest, testing::Bool(), [](const auto& flows) {
  return std::string(flows.param ? "Encrypted" : "Plain");
});

uint16_t PortOf(const sockaddr_in& where) { return ntohs(where.sin_port); }

TEST_P(ZmqTransportTest, BothEndsOfAFlowMarkTheirPackets) {
  ASSERT_TRUE(Open().ok());
  const std::string address = transports_[1]->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  std::map<std::string, int> marks;  // of this process's connections to or from the port
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in here{}, there{};
    socklen_t size = sizeof(here), size_there = sizeof(there);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size_there) != 0 ||
        here.sin_family != AF_INET) {
      continue;
    }
    int tos = 0;
    socklen_t tos_size = sizeof(tos);
    ASSERT_EQ(getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &tos_size), 0);
    if (PortOf(there) == port) marks["sender"] = tos >> 2;
    if (PortOf(here) == port) marks["receiver"] = tos >> 2;
  }
  EXPECT_EQ(marks, (std::map<std::string, int>{{"sender", 46}, {"receiver", 26}}));
}

TEST_P(ZmqTransportTest, OtherSecretsAreRefused) {
  Collector collector;
  std::unique_ptr<ZmqTransport> stranger;
  Start(1, MakeSecret(), &collector, &stranger);
  // Whoever has another key is not even told why; so an encrypted flow is tried until its deadline.
  const bool encrypt = GetParam();
  const char* const why =
      encrypt ? "it is another job's process" : "does not know the job's secret";
  // A stranger as the receiver, and as the sender.
  const Status status = transports_[0]->Open({1, 0, 0, stranger->address()},
                                             encrypt ? milliseconds(5000) : kDeadline);
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  EXPECT_FALSE(
      stranger->Open({0, 0, 0, transports_[0]->address()}, encrypt ? milliseconds(500) : kDeadline)
          .ok());
  EXPECT_TRUE(collectors_[0].Messages(0).empty());
}

TEST_P(ZmqTransportTest, RanksThatEncryptAndOthersAreToldSo) {
  Collector collector;
  std::unique_ptr<ZmqTransport> other;
  Start(1, secret_, &collector, &other, !GetParam());
  const Status status = transports_[0]->Open({1, 0, 0, other->address()}, kDeadline);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the flow to rank 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("set TREPAK_ENCRYPT alike on all ranks"));
}

TEST_P(ZmqTransportTest, FlowsAreTriedAgainUntilTheirDeadline) {
  const std::string address = transports_[1]->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  transports_[1].reset();
  // Something else answers first, and ends the connections.
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &where.sin_addr);
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  ASSERT_EQ(listen(listening, 1), 0);
  std::thread closer([&] {
    close(accept(listening, nullptr, nullptr));
    const int second = accept(listening, nullptr, nullptr);
    close(listening);  // before there is a third
    close(second);
  });
  const Status status = transports_[0]->Open({1, 0, 0, address}, milliseconds(2000));
  shutdown(listening, SHUT_RDWR);
  closer.join();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it ended 2 connections before"));
}

int ConnectTo(const std::string& address) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &where.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  return fd;
}

TEST_P(ZmqTransportTest, StrangersBytesAreIgnoredAndCounted) {
  ASSERT_TRUE(Open().ok());
  std::mt19937 random(3);
  std::vector<int> open;
  for (int stranger = 0; stranger < 20; ++stranger) {
    const int fd = ConnectTo(transports_[1]->address());
    std::string bytes(1 + random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_GT(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    // A connection that is closed before ZeroMQ has read from it is gone with its bytes: half of
    // them stay open.
    if (stranger % 2 == 0) {
      close(fd);
    } else {
      open.push_back(fd);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  for (const int fd : open) close(fd);
  while (transports_[1]->refused() < 20 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(transports_[1]->refused(), 20u);
  ASSERT_TRUE(transports_[0]->Send(1, 0, Push(9, 10)).ok());
  const std::vector<Message> got = collectors_[1].Messages(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].header.key, 9u);
}

TEST_P(ZmqTransportTest, UnusableAddressIsAnError) {
  ZmqTransport::Options options;
  options.host = "192.0.2.1";  // for documentation: nobody has it
  std::unique_ptr<ZmqTransport> transport;
  EXPECT_FALSE(ZmqTransport::Start(options, &collectors_[0], &transport).ok());
}

}  // namespace
}  // namespace trepak
