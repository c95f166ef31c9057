#include "ops/runtime/net/zmq_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <random>

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kDeadline{30'000};

class Collector : public Transport::Receiver {
 public:
  void OnMessage(Message message) override {
    std::unique_lock<std::mutex> lock(mutex_);
    messages_.push_back(std::move(message));
    changed_.notify_all();
    changed_.wait_for(lock, kDeadline, [&] { return !held_; });
  }
  // Lets the receiving thread stand still with its next message, or go on.
  void Hold(bool held) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void OnFailure(uint32_t, const Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_.push_back(status);
    changed_.notify_all();
  }
  void OnTick() override { ++ticks; }

  // Waits for so many; returns what came.
  std::vector<Message> Messages(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kDeadline, [&] { return messages_.size() >= count; });
    return messages_;
  }
  std::vector<Status> Failures(size_t count, milliseconds deadline = kDeadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, deadline, [&] { return failures_.size() >= count; });
    return failures_;
  }

  std::atomic<int> ticks{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  std::vector<Status> failures_;
  bool held_ = false;
};

Message Push(uint32_t key, size_t bytes) {
  Message message;
  message.header.kind = KindOf("test", 1);
  message.header.key = key;
  message.payload = Payload::Allocate(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<unsigned char*>(message.payload.mutable_data())[i] =
        static_cast<unsigned char>(i + key);
  }
  return message;
}

bool Same(const Message& a, const Message& b) {
  return a.header.key == b.header.key && a.payload.view() == b.payload.view();
}

// Plain and encrypted.
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

TEST_P(ZmqTransportTest, MessagesOfAllSizesArriveInOrder) {
  ASSERT_TRUE(Open().ok());
  std::vector<Message> sent;
  for (size_t bytes :
       {0, 1, 1024, 1025, 8191, 8193, 100'000, 4'000'000, 4'194'304, 4'194'305, 9'000'000}) {
    sent.push_back(Push(static_cast<uint32_t>(sent.size()), bytes));
    ASSERT_TRUE(transports_[0]->Send(1, 0, sent.back()).ok());
  }
  const std::vector<Message> got = collectors_[1].Messages(sent.size());
  ASSERT_EQ(got.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_TRUE(Same(got[i], sent[i])) << i;
    EXPECT_EQ(got[i].header.sender, 0u);
  }
}

TEST_P(ZmqTransportTest, PayloadsAreNotCopiedAndLetGo) {
  ASSERT_TRUE(Open().ok());
  Message message = Push(1, 1'000'000);
  auto owner = std::make_shared<int>(0);
  std::weak_ptr<int> watch = owner;
  Payload payload(message.payload.mutable_data(), message.payload.size(), owner);
  owner.reset();
  const Payload keep = message.payload;
  message.payload = std::move(payload);
  ASSERT_TRUE(transports_[0]->Send(1, 0, std::move(message)).ok());
  collectors_[1].Messages(1);
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!watch.expired() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(watch.expired());
}

TEST_P(ZmqTransportTest, HundredsOfMessagesWaitWithoutBeingLost) {
  ASSERT_TRUE(Open().ok());
  for (uint32_t i = 0; i < 500; ++i) ASSERT_TRUE(transports_[0]->Send(1, 0, Push(i, 20'000)).ok());
  const std::vector<Message> got = collectors_[1].Messages(500);
  ASSERT_EQ(got.size(), 500u);
  for (uint32_t i = 0; i < 500; ++i) EXPECT_EQ(got[i].header.key, i);
}

TEST_P(ZmqTransportTest, SmallerOrdersOvertakeWhatWaits) {
  constexpr uint32_t kMessages = 200;
  ASSERT_TRUE(transports_[0]->Open({1, 0, 0, transports_[1]->address(), 64 << 10}, kDeadline).ok());
  collectors_[1].Hold(true);
  Message waiting = Push(0, 1'000'000);
  for (waiting.header.key = 0; waiting.header.key < kMessages; ++waiting.header.key) {
    waiting.header.order = waiting.header.key % 2 == 0 ? 7 : kLastInOrder;
    ASSERT_TRUE(transports_[0]->Send(1, 0, waiting).ok());
  }
  Message urgent = Push(kMessages, 100);
  urgent.header.order = 3;
  collectors_[1].Messages(1);
  ASSERT_TRUE(transports_[0]->Send(1, 0, urgent).ok());
  collectors_[1].Hold(false);
  const std::vector<Message> got = collectors_[1].Messages(kMessages + 1);
  ASSERT_EQ(got.size(), kMessages + 1);
  std::map<uint16_t, std::vector<uint32_t>> keys;
  std::map<uint16_t, size_t> last;
  for (size_t i = 0; i < got.size(); ++i) {
    keys[got[i].header.order].push_back(got[i].header.key);
    last[got[i].header.order] = i;
  }
  EXPECT_LT(last[3], kMessages / 2) << "what had left the queue by then can't be overtaken";
  EXPECT_LT(last[7], last[kLastInOrder]);
  for (const auto& [order, sent] : keys) {
    EXPECT_TRUE(std::is_sorted(sent.begin(), sent.end())) << "of order " << order;
  }
}

TEST_P(ZmqTransportTest, PrioritiesAreFlowsOfTheirOwn) {
  ASSERT_TRUE(Open(0).ok());
  ASSERT_TRUE(Open(1).ok());
  EXPECT_FALSE(Open(1).ok()) << "twice";
  ASSERT_TRUE(transports_[0]->Send(1, 1, Push(1, 10)).ok());
  EXPECT_EQ(collectors_[1].Messages(1)[0].header.priority, 1);
  EXPECT_EQ(transports_[0]->Send(1, 2, Push(1, 10)).code(), StatusCode::kFailedPrecondition);
}

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

TEST_P(ZmqTransportTest, PeerThatEndsIsReported) {
  ASSERT_TRUE(Open().ok());
  transports_[1].reset();
  const std::vector<Status> failures = collectors_[0].Failures(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(std::string(failures[0].message()), HasSubstr("the connection to rank 1"));
  EXPECT_FALSE(transports_[0]->Send(1, 0, Push(1, 10)).ok());
}

TEST_P(ZmqTransportTest, StopSendsWhatIsQueued) {
  ASSERT_TRUE(Open().ok());
  for (uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(transports_[0]->Send(1, 0, Push(i, 50'000)).ok());
  transports_[0]->Stop();
  EXPECT_EQ(collectors_[1].Messages(50).size(), 50u);
  EXPECT_TRUE(collectors_[0].Failures(1, milliseconds(50)).empty());
}

TEST_P(ZmqTransportTest, OpeningHasADeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = transports_[0]->Open({1, 0, 0, "tcp://127.0.0.1:1"}, milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 waited 300 ms for rank 1"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kDeadline);
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
    for (int i = 0; i < 2; ++i) close(accept(listening, nullptr, nullptr));
    close(listening);
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

TEST_P(ZmqTransportTest, TicksCome) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (collectors_[0].ticks < 3 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(collectors_[0].ticks, 3);
}

TEST_P(ZmqTransportTest, UnusableAddressIsAnError) {
  ZmqTransport::Options options;
  options.host = "192.0.2.1";  // for documentation: nobody has it
  std::unique_ptr<ZmqTransport> transport;
  EXPECT_FALSE(ZmqTransport::Start(options, &collectors_[0], &transport).ok());
}

}  // namespace
}  // namespace trepak
