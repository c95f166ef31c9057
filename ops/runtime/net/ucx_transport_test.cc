// What is UCX's alone; what holds for every transport is in transport_test.cc.

#include "ops/runtime/net/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "ops/runtime/net/fake_network.h"
#include "ops/runtime/net/transport_testing.h"
#include "ops/runtime/net/ucx_testing.h"

namespace trepak {
namespace {

using testing::HasSubstr;

constexpr const char* kTheirs = "here:2+ucx";  // of a process that has UCX

// A process that has UCX, but is told of nothing: the test decides what it says.
class Stranger : private UcxNobody {
 public:
  explicit Stranger(bool in_memory_only = true) {
    const Status status = UcxWorker::Make({in_memory_only, 1}, this, &worker_);
    EXPECT_TRUE(status.ok()) << status;
  }

  void Send(const std::string& address, Message message) {
    const Status status = worker_->Connect(0, address, true);
    EXPECT_TRUE(status.ok()) << status;
    worker_->Send(0, 0, std::move(message), 0);
  }

  // Lets UCX work until something is so; returns whether it came to be.
  bool Until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!is_so() && std::chrono::steady_clock::now() < deadline) {
      worker_->Progress();
      std::this_thread::yield();
    }
    return is_so();
  }

  const std::string& address() const { return worker_->address(); }
  bool has_an_answer() const { return has_an_answer_; }

 private:
  bool Expects(const Header& header) override {
    has_an_answer_ = has_an_answer_ || header.kind == ucx::kAnswer;
    return false;
  }

  std::unique_ptr<UcxWorker> worker_;
  bool has_an_answer_ = false;
};

// Far less than what a peer gets to answer.
constexpr milliseconds kPatience{2000};

// Rank 0 has UCX, over a fake network; the other end of its flow is the test.
class UcxTransportTest : public testing::Test {
 protected:
  void Start(bool only_where_faster = true, bool encrypt = false) {
    const auto make = [this](Transport::Receiver* receiver, std::unique_ptr<Transport>* made) {
      *made = network_.Make("here:1", receiver);
      return OkStatus();
    };
    const Status status =
        UcxTransport::Start({0, only_where_faster, encrypt}, &mine_, make, &transport_);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Begins to open a flow; returns what its other end is offered.
  UcxOffer BeginToOpen() {
    opening_ = std::thread([this] { opened_ = transport_->Open({1, 0, 0, kTheirs}, kDeadline); });
    UcxOffer offer;
    const std::vector<Message> got = theirs_.Messages(1);
    EXPECT_EQ(got.size(), 1u);
    const Status status = FromMessage(got.at(0), &offer);
    EXPECT_TRUE(status.ok()) << status;
    return offer;
  }

  FakeNetwork network_;
  Collector mine_, theirs_;
  std::unique_ptr<Transport> other_end_ = network_.Make("here:2", &theirs_);
  std::unique_ptr<UcxTransport> transport_;
  std::thread opening_;
  Status opened_;
};

TEST_F(UcxTransportTest, WhoRefusesGetsFlows) {
  Start();
  Stranger peer;
  const UcxOffer offer = BeginToOpen();
  EXPECT_TRUE(offer.must_read);
  EXPECT_TRUE(CanRead(offer));
  peer.Send(offer.address, ToMessage(UcxAnswer{false, peer.address()}, offer.token));
  EXPECT_TRUE(peer.Until([&] { return transport_->Send(1, 0, Push(7, 100)).ok(); }));
  opening_.join();
  EXPECT_TRUE(opened_.ok()) << opened_;
  EXPECT_TRUE(Same(theirs_.Messages(2).at(1), Push(7, 100)));
  EXPECT_FALSE(transport_->GoesBesideFlow(1, 0));
  transport_->Stop();
}

TEST_F(UcxTransportTest, WhoHasNoTokenIsRefused) {
  Start();
  Stranger peer;
  const UcxOffer offer = BeginToOpen();
  peer.Send(offer.address, ToMessage(UcxAnswer{true, peer.address()}, offer.token + 1));
  for (const size_t bytes : {100, 1'000'000}) {
    Message message = Push(1, bytes);
    message.header.token = offer.token;  // it is for answers, which these are not
    peer.Send(offer.address, std::move(message));
  }
  EXPECT_TRUE(peer.Until([&] { return transport_->refused() == 3; }));
  EXPECT_FALSE(transport_->Send(1, 0, Push(1, 1)).ok()) << "nobody has agreed yet";
  transport_->Stop();
  opening_.join();
  EXPECT_EQ(opened_.code(), StatusCode::kCancelled);
  EXPECT_TRUE(mine_.Messages(0).empty());
}

TEST_F(UcxTransportTest, AddressesTellWhoHasUcx) {
  Start();
  EXPECT_EQ(transport_->address(), "here:1+ucx");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(transport_->Open({1, 0, 0, "here:2"}, kDeadline).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_TRUE(transport_->Send(1, 0, Push(3, 10)).ok());
  EXPECT_TRUE(Same(theirs_.Messages(1).at(0), Push(3, 10))) << "it was asked";
  transport_->Stop();
}

TEST_F(UcxTransportTest, OneWhoDoesNotAnswerIsWaitedFor) {
  Start();
  const UcxOffer offer = BeginToOpen();
  opening_.join();
  EXPECT_TRUE(opened_.ok()) << opened_;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(transport_->Open({2, 0, 0, kTheirs}, kDeadline).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  Stranger peer;  // wakes up too late; what comes behind its answer shows that that has come
  peer.Send(offer.address, ToMessage(UcxAnswer{true, peer.address()}, offer.token));
  peer.Send(offer.address, Push(1, 10));
  EXPECT_TRUE(peer.Until([&] { return transport_->refused() != 0; }));
  EXPECT_EQ(transport_->refused(), 1u) << "the answer is no stranger's";
  EXPECT_TRUE(transport_->Send(1, 0, Push(3, 10)).ok());
  EXPECT_TRUE(Same(theirs_.Messages(2).at(1), Push(3, 10)));
  transport_->Stop();
}

TEST_F(UcxTransportTest, WhoIsOutOfReachIsNotAsked) {
  Start();
  setenv("UCX_TLS", "tcp,self", 1);
  const Stranger peer(false);
  unsetenv("UCX_TLS");
  Stranger witness;
  ASSERT_TRUE(other_end_->Open({0, 0, 0, "here:1"}, kDeadline).ok());
  // Shared memory does not lead to the first one. The other one's answer shows that it was tried.
  for (const auto& [rank, address] : {std::pair(1, peer.address()), {2, witness.address()}}) {
    UcxOffer offer;
    offer.host = "here";
    offer.address = address;
    Message message = ToMessage(offer);
    message.header.sender = rank;
    ASSERT_TRUE(other_end_->Send(0, 0, std::move(message)).ok());
  }
  ASSERT_TRUE(witness.Until([&] { return witness.has_an_answer(); }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(transport_->Open({1, 0, 0, kTheirs}, kDeadline).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_TRUE(transport_->Send(1, 0, Push(3, 10)).ok());
  EXPECT_TRUE(Same(theirs_.Messages(1).at(0), Push(3, 10))) << "it was asked";
  transport_->Stop();
}

TEST_F(UcxTransportTest, OtherHostsGetFlowsUnlessAskedFor) {
  Start();
  const std::unique_ptr<Transport> far = network_.Make("there:1", &theirs_);
  EXPECT_TRUE(transport_->Open({1, 0, 0, "there:1"}, kDeadline).ok());
  EXPECT_TRUE(transport_->Send(1, 0, Push(3, 10)).ok());
  EXPECT_TRUE(Same(theirs_.Messages(1).at(0), Push(3, 10)));
  transport_->Stop();
}

TEST_F(UcxTransportTest, NothingPlainLeavesAHostThatEncrypts) {
  Start(false, true);
  const Status status = transport_->Open({1, 0, 0, "there:1"}, kDeadline);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 is on another host than rank 0"));
  transport_->Stop();
}

TEST_F(UcxTransportTest, WhoIsAskedForAndSilentIsNamed) {
  Start(false);
  const Status status = transport_->Open({1, 0, 0, "here:2"}, milliseconds(200));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 waited for rank 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("UCX_TLS"));
  transport_->Stop();
}

TEST(UcxOfferTest, BytesThatAreNoneAreRefused) {
  Message message;
  message.header.sender = 3;
  UcxOffer offer;
  EXPECT_THAT(std::string(FromMessage(message, &offer).message()), HasSubstr("rank 3"));
  message.payload = Payload::Copy(std::string(30, '\xff'));
  EXPECT_THAT(std::string(FromMessage(message, &offer).message()), HasSubstr("no address"));
}

TEST(UcxOfferTest, MemoryIsReadToKnowThatItCanBe) {
  UcxOffer offer;
  offer.token = 42;
  offer.token_at = reinterpret_cast<uintptr_t>(&offer.token);
  offer.process = getpid();
  EXPECT_TRUE(CanRead(offer));
  UcxOffer other = offer;
  other.token = 43;
  EXPECT_FALSE(CanRead(other)) << "another memory";
  other = offer;
  other.token_at = 8;
  EXPECT_FALSE(CanRead(other)) << "nobody's memory";
}

TEST(UcxSequenceTest, PutsMessagesInOrderAndDropsWhatCameBefore) {
  UcxSequence sequence(2, 1);
  std::deque<Message> due;
  for (const uint32_t number : {2u, 1u}) sequence.Add(number, Push(number, 1), &due);
  EXPECT_TRUE(due.empty());
  for (const uint32_t number : {0u, 1u, 3u}) sequence.Add(number, Push(number, 1), &due);
  ASSERT_EQ(due.size(), 4u);
  for (uint32_t number = 0; number < 4; ++number) {
    EXPECT_EQ(due[number].header.key, number);
    EXPECT_EQ(due[number].header.sender, 2u);
    EXPECT_EQ(due[number].header.priority, 1);
  }
}

}  // namespace
}  // namespace trepak
