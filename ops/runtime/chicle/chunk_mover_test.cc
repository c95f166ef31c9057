// Moves of many chunks between ranks at their own pace, and ranks that go in the midst.

#include "ops/runtime/chicle/chunk_mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>

#include "ops/runtime/chicle/chunk_fake_job.h"

namespace trepak {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint32_t kChunks = 40;

// Chunks, of which the first value of state counts iterations, with their tasks.
std::vector<RankOfChunks> DealChunks(uint32_t ranks, std::vector<uint32_t>* owners) {
  std::vector<RankOfChunks> all(ranks);
  for (uint64_t id = 0; id < kChunks; ++id) {
    const auto task = static_cast<uint32_t>(id % (ranks * ChunkPlan::kTasks));
    const auto chunk = RandomChunk(id, static_cast<uint32_t>(id), 1 + id % 9);
    static_cast<double*>(chunk->arrays()[3].values)[0] = 0;
    all[task / ChunkPlan::kTasks].held[id] = {task, chunk};
    owners->push_back(task);
  }
  return all;
}

// Each has one owner, who is the plan's, and is what it was but for its iterations.
void CheckOwners(const std::vector<RankOfChunks>& ranks, const std::vector<uint32_t>& owners,
                 double iterations) {
  size_t held = 0;
  for (const RankOfChunks& rank : ranks) {
    held += rank.held.size();
  }
  ASSERT_EQ(held, owners.size());
  for (uint64_t id = 0; id < owners.size(); ++id) {
    const auto& of = ranks[owners[id] / ChunkPlan::kTasks].held;
    ASSERT_EQ(of.count(id), 1u) << "chunk " << id;
    const ArrivedChunk& one = of.at(id);
    ASSERT_EQ(one.task, owners[id]);
    const auto fresh = RandomChunk(id, static_cast<uint32_t>(id), 1 + id % 9);
    static_cast<double*>(fresh->arrays()[3].values)[0] = iterations;
    ASSERT_EQ(one.chunk->Digest(), fresh->Digest()) << "chunk " << id;
    ASSERT_TRUE(Chunk::IsPlaced(one.chunk->Stamped()));
  }
}

// Has all ranks make moves, each in a thread of its own; returns what became of each.
std::vector<Status> RunMoves(ChunkFakeJob* job, std::vector<RankOfChunks>* ranks,
                             const std::vector<std::vector<ChunkPlan::Share>>& moves, uint32_t seed,
                             std::atomic<size_t>* done = nullptr) {
  std::vector<Status> statuses(ranks->size());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks->size(); ++rank) {
    threads.emplace_back([=, &moves, &statuses] {
      std::mt19937 random(1000 * seed + rank);
      for (const auto& shares : moves) {
        std::this_thread::sleep_for(microseconds(random() % 500));
        statuses[rank] = (*ranks)[rank].Move(job, rank, shares[rank]);
        if (!statuses[rank].ok()) {
          return;
        }
        (*ranks)[rank].Iterate();
        if (done != nullptr) {
          ++*done;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return statuses;
}

void CheckRandomMoves(uint32_t ranks, size_t blocks, size_t moves_each, uint32_t seed) {
  std::vector<uint32_t> owners;
  std::vector<RankOfChunks> all = DealChunks(ranks, &owners);
  ChunkPlan plan(ranks, owners);
  ChunkFakeJob job(ranks);
  std::mt19937 random(seed);
  for (size_t block = 1; block <= blocks; ++block) {
    std::vector<std::vector<ChunkPlan::Share>> moves;
    for (size_t i = 0; i < moves_each; ++i) {
      moves.push_back(plan.Next(&random));
    }
    for (const Status& status : RunMoves(&job, &all, moves, seed)) {
      ASSERT_EQ(status, OkStatus());
    }
    CheckOwners(all, plan.owners(), static_cast<double>(block * moves_each));
  }
  uint64_t sent = 0, received = 0, sent_bytes = 0, received_bytes = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const ChunkMover::Counters counters = job.peer(rank).counters();
    EXPECT_EQ(counters.moves, blocks * moves_each);
    EXPECT_EQ(counters.bytes_copied, 0u);
    sent += counters.chunks_sent;
    received += counters.chunks_received;
    sent_bytes += counters.bytes_sent;
    received_bytes += counters.bytes_received;
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent_bytes, received_bytes);
  EXPECT_EQ(job.network.Sent(chicle::kTaken), sent);
}

TEST(ChunkMoverTest, AfterEachMoveEachChunkHasOneOwner) {
  CheckRandomMoves(/*ranks=*/4, /*blocks=*/50, /*moves_each=*/1, /*seed=*/1);
  CheckRandomMoves(/*ranks=*/2, /*blocks=*/20, /*moves_each=*/1, /*seed=*/2);
}

// Between moves nothing but themselves keeps ranks together: some are moves ahead.
TEST(ChunkMoverTest, RanksGoOnFromMoveToMove) {
  CheckRandomMoves(/*ranks=*/4, /*blocks=*/3, /*moves_each=*/60, /*seed=*/3);
  CheckRandomMoves(/*ranks=*/7, /*blocks=*/1, /*moves_each=*/40, /*seed=*/4);
}

TEST(ChunkMoverTest, ARankAloneMovesBetweenItsTasks) {
  CheckRandomMoves(/*ranks=*/1, /*blocks=*/10, /*moves_each=*/1, /*seed=*/5);
}

// What both a move and its failure leave: no chunk is at neither end. Of ranks that live on, the
// chunks that were none of the dead one's are all there, and they go on without it.
void CheckThatNothingIsLost(uint32_t seed) {
  constexpr uint32_t kRanks = 3, kDead = 2;
  std::vector<uint32_t> owners;
  std::vector<RankOfChunks> all = DealChunks(kRanks, &owners);
  ChunkPlan plan(kRanks, owners);
  std::mt19937 random(seed);
  std::vector<std::vector<ChunkPlan::Share>> moves;
  for (size_t i = 0; i < 400; ++i) {
    moves.push_back(plan.Next(&random));
  }
  {
    ChunkFakeJob job(kRanks);
    std::atomic<size_t> done{0};
    const size_t fatal = random() % 60;
    std::thread killer([&] {
      while (done < fatal) {
        std::this_thread::sleep_for(microseconds(50));
      }
      job.Kill(kDead);
    });
    const std::vector<Status> statuses = RunMoves(&job, &all, moves, seed, &done);
    killer.join();
    for (uint32_t rank = 0; rank < kDead; ++rank) {
      EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("to rank 2"));
    }
  }
  std::vector<uint32_t> left(kChunks, ChunkPlan::kNobody);
  std::set<uint64_t> seen;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (const auto& [id, one] : all[rank].held) {
      seen.insert(id);
    }
  }
  EXPECT_EQ(seen.size(), kChunks) << "a chunk is at neither end";
  all.resize(kDead);
  for (uint32_t rank = 0; rank < kDead; ++rank) {
    for (auto it = all[rank].held.begin(); it != all[rank].held.end();) {
      const bool is_second = left[it->first] != ChunkPlan::kNobody;
      left[it->first] = is_second ? left[it->first] : rank * ChunkPlan::kTasks;
      it->second.task = rank * ChunkPlan::kTasks;
      it = is_second ? all[rank].held.erase(it) : std::next(it);
    }
  }
  ChunkFakeJob others(kDead);
  ChunkPlan rest(kDead, left);
  moves.clear();
  for (size_t i = 0; i < 20; ++i) {
    moves.push_back(rest.Next(&random));
  }
  for (const Status& status : RunMoves(&others, &all, moves, seed)) {
    EXPECT_EQ(status, OkStatus());
  }
  for (uint64_t id = 0; id < kChunks; ++id) {
    const uint32_t owner = rest.owners()[id];
    EXPECT_TRUE(owner == ChunkPlan::kNobody || all[owner / 2].held.at(id).task == owner);
  }
}

TEST(ChunkMoverTest, NothingIsLostWhenARankDies) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    CheckThatNothingIsLost(seed);
  }
}

// Chunks of ranks that live on are theirs whatever the dead one had to do with the move.
TEST(ChunkMoverTest, ADeadRankTakesNoChunkOfOthersAlong) {
  ChunkFakeJob job(3);
  const auto a = RandomChunk(1, 1), b = RandomChunk(2, 2);
  // Rank 2 never moves: rank 0 waits for it to take chunk 2, rank 1 for its chunk 3.
  auto first = job.Begin(0, {{1, 2, a}, {2, 4, b}}, {});
  auto second = job.Begin(1, {}, {{1, 0, 2}, {3, 2, 2}});
  job.Settle();
  job.Kill(2);
  const Moved zero = ChunkFakeJob::End(std::move(first));
  const Moved one = ChunkFakeJob::End(std::move(second));
  for (const Moved& moved : {zero, one}) {
    EXPECT_THAT(std::string(moved.status.message()), HasSubstr("to rank 2 was lost"));
  }
  EXPECT_TRUE(zero.arrived.empty());
  ASSERT_EQ(one.arrived.size(), 1u) << "what came is passed on";
  EXPECT_EQ(one.arrived[0].task, 2u);
  EXPECT_EQ(one.arrived[0].chunk->Digest(), a->Digest());
}

TEST(ChunkMoverTest, ASessionThatIsClosedGivesBackWhatWasUnderWay) {
  ChunkFakeJob job(2);
  const auto a = RandomChunk(1, 1);
  auto first = job.Begin(0, {{1, 2, a}}, {});
  job.Settle();
  job.peer(0).Cancel(CancelledError("the movers were stopped"));
  EXPECT_EQ(ChunkFakeJob::End(std::move(first)).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(job.Move(0, {{1, 2, a}}, {}).status.code(), StatusCode::kCancelled);
  ChunkFakeJob again(2);
  auto sent = again.Begin(0, {{1, 2, a}}, {});
  const Moved moved = again.Move(1, {}, {{1, 0, 2}});
  EXPECT_EQ(moved.status, OkStatus());
  EXPECT_EQ(ChunkFakeJob::End(std::move(sent)).status, OkStatus());
  EXPECT_EQ(moved.arrived.at(0).chunk->Digest(), a->Digest());
}

TEST(ChunkMoverTest, LostAndDoubledMessagesAreErrors) {
  for (const auto fate :
       {FakeNetwork::Fate::kLose, FakeNetwork::Fate::kDouble, FakeNetwork::Fate::kSwapWithNext}) {
    ChunkFakeJob job(2, milliseconds(400));
    std::atomic<int> chunks{0};
    job.network.SetFault([&](const std::string&, const Message& message) {
      return message.header.kind == chicle::kChunk && chunks++ == 1 ? fate
                                                                    : FakeNetwork::Fate::kArrive;
    });
    Status status;
    for (uint64_t id = 0; id < 5 && status.ok(); ++id) {
      const auto chunk = RandomChunk(id, 1), other = RandomChunk(100 + id, 2);
      auto sent = job.Begin(0, {{1, 2, chunk}, {1, 3, other}}, {});
      status = job.Move(1, {}, {{id, 0, 2}, {100 + id, 0, 3}}).status;
      ChunkFakeJob::End(std::move(sent));
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank"));
    EXPECT_FALSE(status.ok());
  }
}

}  // namespace
}  // namespace trepak
