// What holds for every transport of real jobs.

#include "ops/runtime/net/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include "ops/runtime/net/transport_testing.h"
#include "ops/runtime/net/ucx_transport.h"
#include "ops/runtime/net/zmq_transport.h"

namespace trepak {
namespace {

using testing::HasSubstr;

struct Kind {
  const char* name;
  bool encrypt;
  const char* ucx = nullptr;  // its transports; empty: where it is faster; null: flows alone
};

class TransportTest : public testing::TestWithParam<Kind> {
 protected:
  TransportTest() {
    if (GetParam().ucx != nullptr) {
      setenv("UCX_TLS", GetParam().ucx, 1);
    }
    for (uint32_t rank : {0u, 1u}) Start(rank);
  }
  ~TransportTest() override { unsetenv("UCX_TLS"); }

  void Start(uint32_t rank) {
    ZmqTransport::Options flows;
    flows.rank = rank;
    flows.host = "127.0.0.1";
    flows.secret = secret_;
    flows.silence = kDeadline;
    flows.encrypt = GetParam().encrypt;
    const auto start_flows = [&](Transport::Receiver* receiver,
                                 std::unique_ptr<Transport>* transport) {
      std::unique_ptr<ZmqTransport> made;
      TREPAK_RETURN_IF_ERROR(ZmqTransport::Start(flows, receiver, &made));
      *transport = std::move(made);
      return OkStatus();
    };
    if (GetParam().ucx == nullptr) {
      ASSERT_TRUE(start_flows(&collectors_[rank], &transports_[rank]).ok());
      return;
    }
    UcxTransport::Options options;
    options.rank = rank;
    options.only_where_faster = *GetParam().ucx == 0;
    options.encrypt = GetParam().encrypt;
    std::unique_ptr<UcxTransport> made;
    const Status status = UcxTransport::Start(options, &collectors_[rank], start_flows, &made);
    ASSERT_TRUE(status.ok()) << status;
    transports_[rank] = std::move(made);
  }

  Status Open(uint8_t priority = 0) {
    return transports_[0]->Open({1, priority, 46, transports_[1]->address()}, kDeadline);
  }

  const Secret secret_ = MakeSecret();
  Collector collectors_[2];
  std::unique_ptr<Transport> transports_[2];
};

INSTANTIATE_TEST_SUITE_P(Over, TransportTest,
                         testing::Values(Kind{"Flows", false}, Kind{"EncryptedFlows", true},
                                         Kind{"Ucx", false, ""},
                                         Kind{"UcxBesideEncryption", true, ""},
                                         Kind{"UcxOverTcp", false, "tcp,self"}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(TransportTest, MessagesOfAllSizesArriveInOrder) {
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
    if (GetParam().ucx != nullptr) {  // small ones lie inside ZeroMQ's messages
      EXPECT_EQ(reinterpret_cast<uintptr_t>(got[i].payload.data()) % 64, 0u);
    }
  }
  EXPECT_EQ(transports_[0]->GoesBesideFlow(1, 0), GetParam().ucx != nullptr);
}

TEST_P(TransportTest, PayloadsAreNotCopiedAndLetGo) {
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

TEST_P(TransportTest, HundredsOfMessagesWaitWithoutBeingLost) {
  ASSERT_TRUE(Open().ok());
  for (uint32_t i = 0; i < 500; ++i) ASSERT_TRUE(transports_[0]->Send(1, 0, Push(i, 20'000)).ok());
  const std::vector<Message> got = collectors_[1].Messages(500);
  ASSERT_EQ(got.size(), 500u);
  for (uint32_t i = 0; i < 500; ++i) EXPECT_EQ(got[i].header.key, i);
}

TEST_P(TransportTest, SmallerOrdersOvertakeWhatWaits) {
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

TEST_P(TransportTest, PrioritiesAreFlowsOfTheirOwn) {
  ASSERT_TRUE(Open(0).ok());
  ASSERT_TRUE(Open(1).ok());
  EXPECT_FALSE(Open(1).ok()) << "twice";
  ASSERT_TRUE(transports_[0]->Send(1, 1, Push(1, 10)).ok());
  EXPECT_EQ(collectors_[1].Messages(1)[0].header.priority, 1);
  EXPECT_EQ(transports_[0]->Send(1, 2, Push(1, 10)).code(), StatusCode::kFailedPrecondition);
}

TEST_P(TransportTest, PeerThatEndsIsReported) {
  ASSERT_TRUE(Open().ok());
  transports_[1].reset();
  const std::vector<Status> failures = collectors_[0].Failures(1);
  ASSERT_GE(failures.size(), 1u);  // UCX notices it too, over TCP
  EXPECT_THAT(std::string(failures[0].message()), HasSubstr("the connection to rank 1"));
  EXPECT_FALSE(transports_[0]->Send(1, 0, Push(1, 10)).ok());
}

TEST_P(TransportTest, StopSendsWhatIsQueued) {
  ASSERT_TRUE(Open().ok());
  for (uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(transports_[0]->Send(1, 0, Push(i, 50'000)).ok());
  transports_[0]->Stop();
  EXPECT_EQ(collectors_[1].Messages(50).size(), 50u);
  EXPECT_TRUE(collectors_[0].Failures(1, milliseconds(50)).empty());
}

TEST_P(TransportTest, OpeningHasADeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = transports_[0]->Open({1, 0, 0, "tcp://127.0.0.1:1"}, milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 waited 300 ms for rank 1"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kDeadline);
}

TEST_P(TransportTest, TicksCome) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (collectors_[0].ticks < 3 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(collectors_[0].ticks, 3);
}

}  // namespace
}  // namespace trepak
