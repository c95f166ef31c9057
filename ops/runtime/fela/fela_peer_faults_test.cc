// Holders that fail or leave, orders that can't be, and what comes that is no chunk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/fela/fela_peer_testing.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr FelaChunkName kName{0, 7, FelaChunkKind::kOutput};
constexpr char kText[] = "the output of token 7 in iteration 0";

std::string Text(const Status& status) { return std::string(status.message()); }

TEST(FelaPeerFaultsTest, MessagesThatAreLostDoubledOrSwappedAreErrors) {
  for (const FakeNetwork::Fate fate :
       {FakeNetwork::Fate::kLose, FakeNetwork::Fate::kDouble, FakeNetwork::Fate::kSwapWithNext}) {
    FelaPeers job(2);
    int messages = 0;
    job.network.SetFault([&](const std::string&, const Message& message) {
      const bool is_hit = message.header.kind == fela::kChunk && ++messages == 2;
      return is_hit ? fate : FakeNetwork::Fate::kArrive;
    });
    for (uint32_t token = 0; token < 3; ++token) {
      ASSERT_EQ(job.peer(0).Put({0, token, kName.kind}, FelaTensors(2)), OkStatus());
    }
    auto taken = job.Begin(1, {{{0, 2, kName.kind}, 0}});
    for (uint32_t token = 0; token < 3; ++token) {
      // After a failure the sender hears of it before it has sent all.
      [[maybe_unused]] const Status status = job.peer(0).SendTo({0, token, kName.kind}, 1);
    }
    const Taken got = FelaPeers::End(std::move(taken));
    EXPECT_THAT(got.message(), HasSubstr("one was lost, doubled or overtaken"));
    job.Settle();
    EXPECT_THAT(Text(job.Put(0, kName)), HasSubstr("rank 1 gave up")) << "all hear of it";
  }
}

TEST(FelaPeerFaultsTest, AHolderThatDiesIsNamedAtOnce) {
  FelaPeers job(3);
  auto taken = job.Begin(0, {{kName, 2}});
  job.Kill(2);
  const Taken got = FelaPeers::End(std::move(taken));
  EXPECT_THAT(got.message(), HasSubstr("the connection to rank 2 was lost"));
  EXPECT_FALSE(job.Take(0, {{kName, 1}}).status.ok()) << "nor does a later one wait";
  EXPECT_LT(job.peer(0).counters().waiting_seconds, 10);
}

TEST(FelaPeerFaultsTest, AHolderThatHasLeftIsNamedAtOnce) {
  FelaPeers job(3);
  ASSERT_EQ(job.Put(2, kName), OkStatus());
  ASSERT_EQ(job.peer(2).SendTo(kName, 0), OkStatus());
  job.peer(2).Leave();
  job.Settle();
  EXPECT_EQ(job.Take(0, {{kName, 2}}).status, OkStatus()) << "what it has sent is here";
  EXPECT_THAT(job.Take(1, {{kName, 2}}).message(),
              AllOf(HasSubstr(std::string("rank 1: it waits for ") + kText),
                    HasSubstr("rank 2 has ended its training while others go on")));
  FelaPeers other(2);
  ASSERT_EQ(other.Put(0, kName), OkStatus());
  other.peer(0).Leave();
  EXPECT_THAT(Text(other.peer(0).SendTo(kName, 1)), HasSubstr("but has ended its training"));
}

TEST(FelaPeerFaultsTest, WaitingHasADeadlineThatNamesTheHolder) {
  FelaPeers job(3, 2, milliseconds(2000));
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  const Taken got = job.Take(0, {{kName, 0}, {{0, 9, FelaChunkKind::kGradient}, 2}});
  EXPECT_EQ(got.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(got.message(),
              AllOf(HasSubstr("rank 0: it waited 2 s for rank 2 to send the gradient of the output "
                              "of token 9 in iteration 0"),
                    HasSubstr("TREPAK_DEADLINE_SECONDS")));
}

// What comes begins the wait anew: large chunks take long on slow links.
TEST(FelaPeerFaultsTest, TheDeadlineIsOfEachTensor) {
  FelaPeers job(2, 2, milliseconds(2000));
  job.network.SetFault([](const std::string&, const Message& message) {
    std::this_thread::sleep_for(milliseconds(message.header.kind == fela::kChunk ? 900 : 0));
    return FakeNetwork::Fate::kArrive;
  });
  ASSERT_EQ(job.peer(0).Put(kName, FelaTensors(3)), OkStatus());
  auto taken = job.Begin(1, {{kName, 0}});
  ASSERT_EQ(job.peer(0).SendTo(kName, 1), OkStatus());
  EXPECT_EQ(FelaPeers::End(std::move(taken)).status, OkStatus());
}

TEST(FelaPeerFaultsTest, OrdersThatCannotBeAreErrorsThatNameTheChunk) {
  FelaPeers job(2);
  const auto error_of = [&](uint32_t rank) { return Text(job.peer(0).SendTo(kName, rank)); };
  EXPECT_THAT(error_of(1), HasSubstr(std::string("rank 0 is to send ") + kText +
                                     " to rank 1, but does not have it"));
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  EXPECT_THAT(error_of(2), HasSubstr("to rank 2 of 2"));
  EXPECT_THAT(Text(job.Put(0, kName)), HasSubstr("rank 0: this rank makes"));
  job.peer(0).DropBefore(1);
  EXPECT_THAT(error_of(1), HasSubstr("to rank 1, but has dropped it"));
  EXPECT_EQ(job.network.Sent(fela::kChunk), 0u);
}

TEST(FelaPeerFaultsTest, WhatCannotBeTakenIsAnErrorOfWhoTakesItAlone) {
  FelaPeers job(2);
  EXPECT_THAT(job.Take(0, {{kName, 0}}).message(),
              HasSubstr(std::string("rank 0 takes ") + kText + " of itself, but has not put it"));
  EXPECT_THAT(job.Take(0, {{kName, 2}}).message(), HasSubstr("of rank 2 of 2"));
  EXPECT_THAT(job.Take(0, {{{2, 7, kName.kind}, 1}}).message(), HasSubstr("can't be kept yet"));
  auto taken = job.Begin(0, {{kName, 1}});
  job.peer(0).DropBefore(1);
  EXPECT_THAT(FelaPeers::End(std::move(taken)).message(), HasSubstr("can't be had any more"));
  EXPECT_THAT(job.Take(0, {{kName, 1}}).message(), HasSubstr("can't be had any more"));
  EXPECT_EQ(job.Put(0, {1, 1, kName.kind}), OkStatus());
}

TEST(FelaPeerFaultsTest, ARankThatIsFarAheadIsNamed) {
  FelaPeers job(2);
  const FelaChunkName ahead{2, 7, kName.kind};
  auto taken = job.Begin(1, {{kName, 0}});
  job.peer(0).DropBefore(2);
  ASSERT_EQ(job.Put(0, ahead), OkStatus());
  ASSERT_EQ(job.peer(0).SendTo(ahead, 1), OkStatus());
  EXPECT_THAT(FelaPeers::End(std::move(taken)).message(),
              HasSubstr("rank 1: rank 0: the output of token 7 in iteration 2 can't be kept yet"));
}

TEST(FelaPeerFaultsTest, AWaitEndsWithItsPeer) {
  FelaPeers job(2);
  auto taken = job.Begin(0, {{kName, 1}});
  job.peer(0).Cancel(CancelledError("Fela was stopped"));
  EXPECT_EQ(FelaPeers::End(std::move(taken)).message(), "Fela was stopped");
}

TEST(FelaPeerFaultsTest, OneTakeIsCancelledAndOthersGoOn) {
  FelaPeers job(2);
  const uint64_t number = job.peer(0).DrawNumber();
  job.peer(0).CancelTake(number);  // does nothing: it has not begun
  auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> cancelled = promise->get_future();
  job.peer(0).Take(
      {{kName, 1}}, [promise](const Status& status, const auto&) { promise->set_value(status); },
      number);
  auto other = job.Begin(0, {{kName, 1}});
  job.peer(0).CancelTake(job.peer(0).DrawNumber());
  EXPECT_EQ(cancelled.wait_for(milliseconds(0)), std::future_status::timeout);
  job.peer(0).CancelTake(number);
  ASSERT_EQ(cancelled.wait_for(milliseconds(0)), std::future_status::ready);
  EXPECT_EQ(cancelled.get().code(), StatusCode::kCancelled);
  job.peer(0).CancelTake(number);  // it is over
  EXPECT_FALSE(FelaPeers::IsOver(other));
  ASSERT_EQ(job.Put(1, kName), OkStatus());
  ASSERT_EQ(job.peer(1).SendTo(kName, 0), OkStatus());
  EXPECT_EQ(FelaPeers::End(std::move(other)).status, OkStatus());
}

// Rank 1 is not a peer, but says what it likes.
class LiarToPeer : public Liar<FelaPeer> {
 public:
  LiarToPeer()
      : Liar(std::make_shared<FelaPeer>(Endpoint::Options{0, 2, FelaPeers::kDeadline}, 2,
                                        std::make_shared<ErrorLatch>())) {}

  // What rank 0 finds while it waits for a chunk that does not come.
  Status Find() {
    auto promise = std::make_shared<std::promise<Status>>();
    std::future<Status> future = promise->get_future();
    to().Take({{{0, 100, kName.kind}, 1}},
              [promise](const Status& status, const auto&) { promise->set_value(status); });
    return future.wait_for(FelaPeers::kDeadline) == std::future_status::ready
               ? future.get()
               : InternalError("it never ended");
  }
};

TEST(FelaPeerFaultsTest, WhatIsNoChunkIsAnErrorThatNamesItsSender) {
  const auto error_of = [](const std::vector<Message>& messages) {
    LiarToPeer liar;
    for (const Message& message : messages) {
      liar.Say(message);
    }
    return Text(liar.Find());
  };
  const auto changed = [](void (*change)(Header*)) {
    Message message = MessageOfPart({kName, 0, 2}, Payload::Copy("x"));
    change(&message.header);
    return message;
  };
  EXPECT_THAT(error_of({changed([](Header* header) { header->kind = KindOf("fela", 0x21); })}),
              HasSubstr("from rank 1, which it did not wait for"));
  EXPECT_THAT(error_of({changed([](Header* header) { header->slice = 4 << 16; })}),
              HasSubstr("rank 0: rank 1 sent tensor 0 of 2 of a chunk of kind 4 of token 7"));
  EXPECT_THAT(error_of({changed([](Header* header) { header->slice += 2; })}),
              HasSubstr("rank 1 sent tensor 2 of 2"));
  const Message first = MessageOfPart({kName, 0, 2}, Payload());
  const Message last = MessageOfPart({kName, 1, 2}, Payload());
  EXPECT_THAT(error_of({first, MessageOfPart({kName, 1, 3}, Payload())}),
              HasSubstr("rank 1 sent tensor 1 of 3 of the output of token 7 in iteration 0, where "
                        "tensor 1 of 2 was due"));
  EXPECT_THAT(error_of({last}), HasSubstr("where tensor 0 of 2 was due"));
  EXPECT_THAT(error_of({first, last, first}),
              HasSubstr(std::string("rank 1 sent ") + kText + " twice"));
}

// A message is a tensor that was due, of an iteration that can't be had any more, or an error.
TEST(FelaPeerFaultsTest, GarbageIsAnErrorAndNoMore) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    LiarToPeer liar;
    const uint64_t first = random() % 2;
    liar.to().DropBefore(first);
    Message garbage = MessageOfPart({kName, 0, 2}, Payload::Copy(std::string(random() % 99, 'x')));
    garbage.header.kind = random() % 4 == 0 ? KindOf("fela", random() % 0xf0) : fela::kChunk;
    garbage.header.round = random() % 4 == 0 ? random() : random() % 4;
    garbage.header.key = random();
    garbage.header.slice = random() % 2 == 0 ? random() : (random() % 5) << 16 | random() % 3;
    garbage.header.flags = static_cast<uint8_t>(random() % 3);
    const Header& header = garbage.header;
    const bool is_chunk =
        header.kind == fela::kChunk && header.slice >> 16 < 4 &&
        (header.slice & 0xffff) < header.flags &&
        (header.round < first || ((header.slice & 0xffff) == 0 && header.round < first + 2));
    liar.Say(garbage);
    liar.Settle();
    const Status status = liar.to().Put({first, 1, kName.kind}, FelaTensors(1));
    EXPECT_EQ(status.ok(), is_chunk) << status;
  }
}

}  // namespace
}  // namespace trepak
