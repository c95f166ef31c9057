// Ranks in one process that move chunks, for tests.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_CHUNK_FAKE_JOB_H_
#define TREPAK_OPS_RUNTIME_CHICLE_CHUNK_FAKE_JOB_H_

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/chicle/chunk_mover.h"
#include "ops/runtime/chicle/chunk_testing.h"
#include "ops/runtime/net/fake_peers.h"

namespace trepak {

constexpr std::chrono::milliseconds kMoveDeadline{20'000};

struct Moved {
  Status status;
  std::vector<ArrivedChunk> arrived;
};

// Thread safety: each rank's calls in one thread.
class ChunkFakeJob : public FakePeers<ChunkMover> {
 public:
  explicit ChunkFakeJob(uint32_t size, std::chrono::milliseconds deadline = kMoveDeadline)
      : FakePeers(size, [=](uint32_t rank) {
          return std::make_shared<ChunkMover>(Endpoint::Options{rank, size, deadline},
                                              std::make_shared<ErrorLatch>());
        }) {}

  std::future<Moved> Begin(uint32_t rank, const std::vector<OutgoingChunk>& outgoing,
                           const std::vector<ExpectedChunk>& expected) {
    auto promise = std::make_shared<std::promise<Moved>>();
    peer(rank).Move(outgoing, expected,
                    [promise](const Status& status, std::vector<ArrivedChunk> arrived) {
                      promise->set_value({status, std::move(arrived)});
                    });
    return promise->get_future();
  }

  static Moved End(std::future<Moved> future) {
    return future.wait_for(2 * kMoveDeadline) == std::future_status::ready
               ? future.get()
               : Moved{InternalError("it never ended"), {}};
  }

  Moved Move(uint32_t rank, const std::vector<OutgoingChunk>& outgoing,
             const std::vector<ExpectedChunk>& expected) {
    return End(Begin(rank, outgoing, expected));
  }
};

// Whose the chunks of a job are, which all ranks know; tasks 2r and 2r + 1 are rank r's.
class ChunkPlan {
 public:
  static constexpr uint32_t kTasks = 2;  // of a rank
  struct Share {
    std::map<uint64_t, std::pair<uint32_t, uint32_t>> outgoing;  // by chunk: rank, task
    std::vector<ExpectedChunk> expected;
  };

  ChunkPlan(uint32_t ranks, std::vector<uint32_t> owners)
      : ranks_(ranks), owners_(std::move(owners)) {}

  // Gives some chunks to other tasks. Returns, by rank, what each has to do.
  std::vector<Share> Next(std::mt19937* random) {
    std::vector<Share> shares(ranks_);
    const uint32_t one_of = 1 + (*random)() % 8;
    for (uint64_t id = 0; id < owners_.size(); ++id) {
      const uint32_t to = (*random)() % (ranks_ * kTasks);
      const uint32_t from = owners_[id];
      if ((*random)() % one_of != 0 || to == from || from == kNobody) {
        continue;
      }
      shares[from / kTasks].outgoing[id] = {to / kTasks, to};
      shares[to / kTasks].expected.push_back({id, from / kTasks, to});
      owners_[id] = to;
    }
    return shares;
  }

  static constexpr uint32_t kNobody = ~uint32_t{0};
  const std::vector<uint32_t>& owners() const { return owners_; }

 private:
  const uint32_t ranks_;
  std::vector<uint32_t> owners_;  // task, by chunk
};

// The chunks that a rank has.
struct RankOfChunks {
  std::map<uint64_t, ArrivedChunk> held;

  // Makes a rank's share of a move. What failed leaves all that it had.
  Status Move(ChunkFakeJob* job, uint32_t rank, const ChunkPlan::Share& share) {
    std::vector<OutgoingChunk> outgoing;
    for (const auto& [id, to] : share.outgoing) {
      outgoing.push_back({to.first, to.second, held.at(id).chunk});
    }
    Moved moved = job->Move(rank, outgoing, share.expected);
    if (moved.status.ok()) {
      EXPECT_EQ(moved.arrived.size(), share.expected.size());
      for (const auto& [id, to] : share.outgoing) {
        held.erase(id);
      }
    }
    for (ArrivedChunk& one : moved.arrived) {
      const uint64_t id = one.chunk->id();
      held[id] = std::move(one);
    }
    return moved.status;
  }

  // As a task would do in an iteration: writes to state.
  void Iterate() {
    for (auto& [id, one] : held) {
      ++static_cast<double*>(one.chunk->arrays()[3].values)[0];
    }
  }
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_CHUNK_FAKE_JOB_H_
