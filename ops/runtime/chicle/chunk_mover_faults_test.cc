// Moves that ranks do not make alike, and what comes that is no chunk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/chicle/chunk_fake_job.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

std::string Text(const Moved& moved) { return std::string(moved.status.message()); }

TEST(ChunkMoverFaultsTest, WhatComesBeforeItsMoveWaitsAndIsNotAcknowledged) {
  ChunkFakeJob job(2);
  auto sent = job.Begin(0, {{1, 2, RandomChunk(1, 1)}}, {});
  job.Settle();
  EXPECT_EQ(job.network.Sent(chicle::kTaken), 0u);
  EXPECT_EQ(sent.wait_for(milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(job.Move(1, {}, {{1, 0, 2}}).arrived.size(), 1u);
  EXPECT_EQ(ChunkFakeJob::End(std::move(sent)).status, OkStatus());
}

// On both ranks, whichever sees it first.
TEST(ChunkMoverFaultsTest, ChunksThatAreNotExpectedAreErrors) {
  const auto errors_of = [](std::vector<OutgoingChunk> outgoing,
                            std::vector<ExpectedChunk> expected) {
    ChunkFakeJob job(3);
    auto sent = job.Begin(0, outgoing, {});
    const std::string error = Text(job.Move(1, {}, expected));
    EXPECT_THAT(Text(ChunkFakeJob::End(std::move(sent))), HasSubstr(error));
    job.Settle();
    EXPECT_FALSE(job.Move(2, {}, {}).status.ok()) << "all ranks hear of it";
    return error;
  };
  const auto chunk = RandomChunk(7, 7);
  EXPECT_THAT(errors_of({{1, 2, chunk}}, {{8, 0, 2}}),
              AllOf(HasSubstr("rank 0 sent chunk 7 for task 2 in move 0, which this rank does not "
                              "expect: make the moves of all ranks from the same ledger"),
                    HasSubstr("rank 1")));
  EXPECT_THAT(errors_of({{1, 2, chunk}}, {{7, 0, 3}}),
              HasSubstr("which this rank expects from rank 0 for task 3"));
  EXPECT_THAT(errors_of({{1, 2, chunk}}, {{7, 2, 2}}),
              HasSubstr("which this rank expects from rank 2 for task 2"));
}

// The rank that gets one too many has ended that move; its next one says so.
TEST(ChunkMoverFaultsTest, ChunksOfAMoveThatIsOverAreErrors) {
  ChunkFakeJob job(2);
  EXPECT_EQ(job.Move(1, {}, {}).status, OkStatus());
  const std::string error = "sent chunk 7 for task 2 in move 0, which this rank does not expect";
  EXPECT_THAT(Text(job.Move(0, {{1, 2, RandomChunk(7, 7)}}, {})), HasSubstr(error));
  EXPECT_THAT(Text(job.Move(1, {}, {})), HasSubstr(error));
}

TEST(ChunkMoverFaultsTest, MovesThatCannotBeAreErrorsOfAllRanks) {
  const auto error_of = [](std::vector<OutgoingChunk> outgoing,
                           std::vector<ExpectedChunk> expected) {
    ChunkFakeJob job(2);
    auto other = job.Begin(1, {}, {{7, 0, 2}});
    const std::string error = Text(job.Move(0, outgoing, expected));
    EXPECT_THAT(Text(ChunkFakeJob::End(std::move(other))), HasSubstr("rank 0 gave up: " + error));
    return error;
  };
  const auto chunk = RandomChunk(7, 7);
  EXPECT_THAT(error_of({{1, 2, chunk}, {0, 0, chunk}}, {}), HasSubstr("chunk 7 is to go twice"));
  EXPECT_THAT(error_of({{2, 2, chunk}}, {}),
              HasSubstr("chunk 7 is to go twice, or to rank 2 of 2"));
  EXPECT_THAT(error_of({{1, 2, nullptr}}, {}), HasSubstr("to rank 1 for task 2 in move 0 is no"));
  EXPECT_THAT(error_of({}, {{7, 1, 2}, {7, 1, 3}}), HasSubstr("chunk 7 is expected twice"));
  EXPECT_THAT(error_of({}, {{7, 5, 2}}), HasSubstr("or from rank 5 of 2"));
  EXPECT_THAT(error_of({{0, 1, chunk}}, {}), HasSubstr("this rank does not expect"));
}

TEST(ChunkMoverFaultsTest, OneMoveAtATime) {
  ChunkFakeJob job(2);
  auto first = job.Begin(0, {}, {{1, 1, 0}});
  EXPECT_THAT(Text(job.Move(0, {}, {})), HasSubstr("rank 0 moves chunks already"));
  EXPECT_EQ(job.Move(1, {{0, 0, RandomChunk(1, 1)}}, {}).status, OkStatus());
  EXPECT_EQ(ChunkFakeJob::End(std::move(first)).status, OkStatus()) << "it was no harm";
}

TEST(ChunkMoverFaultsTest, RanksThatCountTheirMovesOtherwiseAreNamed) {
  const auto chunk = RandomChunk(7, 7), other = RandomChunk(8, 8);
  {
    ChunkFakeJob job(2);  // rank 0 leaves out a move: what it sends belongs to one that is over
    EXPECT_EQ(job.Move(1, {}, {}).status, OkStatus());
    auto second = job.Begin(1, {}, {{7, 0, 2}});
    const std::string sent = Text(job.Move(0, {{1, 2, chunk}}, {}));
    EXPECT_THAT(sent, HasSubstr("rank 0 sent chunk 7 in move 0, which is over on this rank: move "
                                "chunks on all ranks, and as often"));
    EXPECT_THAT(sent, HasSubstr(Text(ChunkFakeJob::End(std::move(second)))));
  }
  for (const bool comes_first : {false, true}) {
    ChunkFakeJob job(2);  // rank 0 makes one too many
    EXPECT_EQ(job.Move(0, {}, {}).status, OkStatus());
    auto sent = comes_first ? job.Begin(0, {{1, 2, chunk}}, {}) : std::future<Moved>();
    job.Settle();
    auto waits = job.Begin(1, {}, {{8, 0, 2}, {7, 0, 2}});
    sent = comes_first ? std::move(sent) : job.Begin(0, {{1, 2, chunk}}, {});
    EXPECT_THAT(Text(ChunkFakeJob::End(std::move(waits))),
                HasSubstr("rank 0 sent chunk 7 in move 1 while this rank waits for its chunk 7 in "
                          "move 0: move chunks on all ranks, and as often"));
    EXPECT_FALSE(ChunkFakeJob::End(std::move(sent)).status.ok());
  }
}

TEST(ChunkMoverFaultsTest, WhoIsWaitedForIsNamed) {
  ChunkFakeJob job(4, milliseconds(300));
  const Moved waited =
      job.Move(0, {{2, 4, RandomChunk(7, 1)}, {1, 2, RandomChunk(9, 1)}}, {{5, 3, 0}, {6, 1, 1}});
  EXPECT_EQ(waited.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(waited), HasSubstr("for chunks of ranks 1, 3 (chunk 5) and for ranks 1, 2 to "
                                      "take chunks (chunk 7) in move 0: move chunks on all ranks"));
}

// Each chunk that comes begins the wait anew: many take long.
TEST(ChunkMoverFaultsTest, TheDeadlineIsOfEachChunk) {
  ChunkFakeJob job(2, milliseconds(2000));
  std::vector<OutgoingChunk> outgoing;
  std::vector<ExpectedChunk> expected;
  for (uint64_t id = 0; id < 8; ++id) {
    outgoing.push_back({1, 2, RandomChunk(id, 1)});
    expected.push_back({id, 0, 2});
  }
  job.network.SetFault([](const std::string&, const Message& message) {
    if (message.header.kind == chicle::kChunk) {
      std::this_thread::sleep_for(milliseconds(400));
    }
    return FakeNetwork::Fate::kArrive;
  });
  auto gotten = job.Begin(1, {}, expected);
  EXPECT_EQ(job.Move(0, outgoing, {}).status, OkStatus());
  EXPECT_EQ(ChunkFakeJob::End(std::move(gotten)).status, OkStatus());
}

TEST(ChunkMoverFaultsTest, WhoHasLeftIsNamed) {
  ChunkFakeJob job(3);
  job.peer(2).Leave();
  EXPECT_THAT(Text(job.Move(0, {}, {{1, 2, 0}})), HasSubstr("rank 2 has ended its training"));
  ChunkFakeJob other(3);
  other.peer(2).Leave();
  EXPECT_EQ(other.Move(0, {}, {}).status, OkStatus()) << "who needs it not goes on";
  EXPECT_THAT(Text(other.Move(0, {{2, 4, RandomChunk(1, 1)}}, {})), HasSubstr("rank 2 has ended"));
}

// Rank 1 is not a mover, but says what it likes.
class LiarToMover : public Liar<ChunkMover> {
 public:
  LiarToMover()
      : Liar(std::make_shared<ChunkMover>(Endpoint::Options{0, 2, kMoveDeadline},
                                          std::make_shared<ErrorLatch>())) {}

  void SayChunk(Payload block, uint64_t number = 0, uint32_t task = 0, uint32_t id = 1) {
    Message message;
    message.header.kind = chicle::kChunk;
    message.header.round = number;
    message.header.key = task;
    message.header.slice = id;
    message.payload = std::move(block);
    Say(std::move(message));
  }

  // What rank 0 finds while it waits for chunks 1 and 2, and for rank 1 to take chunk 3.
  Moved Move(const std::function<void()>& lie) {
    auto promise = std::make_shared<std::promise<Moved>>();
    std::future<Moved> future = promise->get_future();
    to().Move({{1, 2, RandomChunk(3, 3)}}, {{1, 1, 0}, {2, 1, 0}},
              [promise](const Status& status, std::vector<ArrivedChunk> arrived) {
                promise->set_value({status, std::move(arrived)});
              });
    lie();
    return ChunkFakeJob::End(std::move(future));
  }
};

TEST(ChunkMoverFaultsTest, WhatIsNoChunkIsAnErrorThatNamesIt) {
  LiarToMover liar;
  Payload block = CopyOf(RandomChunk(1, 1).get());
  static_cast<char*>(block.mutable_data())[block.size() / 2] ^= 1;
  EXPECT_THAT(Text(liar.Move([&] { liar.SayChunk(block); })),
              HasSubstr("rank 0: rank 1 sent, as chunk 1 for task 0 in move 0, what can't be "
                        "taken: chunk 1: its checksum is wrong: it was damaged on its way. The "
                        "sender still has the chunk: move it again in a new session"));
  LiarToMover other;
  EXPECT_THAT(Text(other.Move([&] { other.SayChunk(CopyOf(RandomChunk(2, 2).get())); })),
              HasSubstr("as chunk 1 for task 0 in move 0, what can't be taken: chunk 2"));
}

TEST(ChunkMoverFaultsTest, AChunkThatComesTwiceIsAnError) {
  LiarToMover liar;
  const Payload block = CopyOf(RandomChunk(1, 1).get());
  const Moved moved = liar.Move([&] {
    liar.SayChunk(block);
    liar.SayChunk(block);
  });
  EXPECT_THAT(Text(moved), HasSubstr("rank 1 sent chunk 1 for task 0 in move 0 twice"));
  EXPECT_EQ(moved.arrived.size(), 1u);
}

TEST(ChunkMoverFaultsTest, LiesAboutWhatWasTakenAreErrors) {
  const auto error_of = [](uint64_t id, uint64_t number, int times) {
    LiarToMover liar;
    return Text(liar.Move([&] {
      for (int i = 0; i < times; ++i) {
        Message taken = MessageOf(chicle::kTaken, id);
        taken.header.round = number;
        liar.Say(taken);
      }
    }));
  };
  EXPECT_THAT(error_of(4, 0, 1), HasSubstr("rank 1 says that it has taken chunk 4 in move 0, which "
                                           "this rank has not sent it"));
  EXPECT_THAT(error_of(3, 0, 2), HasSubstr("says that it has taken chunk 3"));
  EXPECT_THAT(error_of(3, 1, 1), HasSubstr("from rank 1, which it did not wait for"));
}

TEST(ChunkMoverFaultsTest, OnlyTheReceiverTakesAChunk) {
  ChunkMove move(5, 3);
  ASSERT_EQ(move.Plan({{1, 2, RandomChunk(3, 3)}, {2, 4, RandomChunk(4, 4)}}, {}), OkStatus());
  EXPECT_THAT(std::string(move.Acknowledge(2, 3).message()),
              HasSubstr("rank 2 says that it has taken chunk 3 in move 5"));
  EXPECT_EQ(move.Acknowledge(1, 3), OkStatus());
  EXPECT_FALSE(move.is_over());
  EXPECT_THAT(move.takers(), testing::ElementsAre(2));
  EXPECT_EQ(move.Acknowledge(2, 4), OkStatus());
  EXPECT_TRUE(move.is_over());
}

TEST(ChunkMoverFaultsTest, GarbageIsAnErrorAndNoMore) {
  std::mt19937 random(1);
  const std::string good(CopyOf(RandomChunk(1, 1).get()).view());
  for (int i = 0; i < 300; ++i) {
    LiarToMover liar;
    std::string bytes = i % 2 == 0 ? good : std::string(random() % 200, '\0');
    for (size_t k = 0; k < 1 + random() % 9 && !bytes.empty(); ++k) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    Message garbage;
    garbage.header.kind =
        i % 3 == 0 ? static_cast<MessageKind>(KindOf("chicle", random() % 5)) : chicle::kChunk;
    garbage.header.round = random() % 3;
    garbage.header.key = random() % 3;
    garbage.header.slice = 1;
    garbage.payload = Payload::Copy(bytes);
    EXPECT_FALSE(liar.Move([&] { liar.Say(garbage); }).status.ok());
  }
}

}  // namespace
}  // namespace trepak
