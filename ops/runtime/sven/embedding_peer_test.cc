#include "ops/runtime/sven/embedding_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "ops/runtime/net/fake_network.h"
#include "ops/runtime/sven/embedding_fake_job.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Fate = FakeNetwork::Fate;

constexpr milliseconds kDeadline{20'000};
constexpr uint32_t kRanks = 3;
constexpr int64_t kRows = 12;
constexpr int64_t kColumns = 2;

// All ranks of a job in one process, each with a third of the rows of a table; shard k is rank k's.
class Job {
 public:
  explicit Job(milliseconds deadline = kDeadline) {
    EmbeddingTable table{"users", kRows, kColumns, {}};
    table.optimizer.rule = RowRule::kAdagrad;
    std::vector<EmbeddingShard> shards;
    AddGrid(kRanks, 0, table, kRanks, 1, &shards);
    plan = MakePlan(kRanks, {table}, shards);
    std::vector<std::string> addresses;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      stores.emplace_back();
      EXPECT_TRUE(EmbeddingStore::Make(plan, rank, &stores[rank]).ok());
      addresses.push_back("rank " + std::to_string(rank));
      peers.push_back(std::make_shared<EmbeddingPeer>(
          Endpoint::Options{rank, kRanks, deadline}, stores[rank], std::make_shared<ErrorLatch>()));
      peers[rank]->Attach(network.Make(addresses[rank], peers[rank].get()));
    }
    for (auto& peer : peers) {
      EXPECT_TRUE(peer->Connect(addresses, {0}).ok());
    }
  }

  ~Job() {
    for (auto& peer : peers) {
      peer->Cancel(CancelledError("the test is over"));
      peer->Shutdown();
    }
  }

  // What a request has come to.
  struct Outcome {
    Status status;
    std::vector<float> rows;
  };
  using Pending = std::future<Outcome>;

  Pending Read(uint32_t rank, const EmbeddingBlock& block) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    peers[rank]->Read(block, Keeping(promise));
    return promise->get_future();
  }

  Pending Write(uint32_t rank, const EmbeddingBlock& block, const std::vector<float>& rows) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    peers[rank]->Write(block, Payload::Copy(rows.data(), rows.size() * sizeof(float)),
                       Keeping(promise));
    return promise->get_future();
  }

  static Outcome Wait(Pending pending) {
    return pending.wait_for(kDeadline) == std::future_status::ready
               ? pending.get()
               : Outcome{InternalError("it never ended"), {}};
  }

  // Applies an update without rows, as the end of a step does; it is refused if there is a
  // gradient.
  Status Update(uint32_t rank, const std::vector<float>& gradients = {}) {
    std::vector<int64_t> requests(kRanks);
    EmbeddingRequests parsed;
    const std::vector<int64_t> splits(kRanks, 1);
    EXPECT_EQ(stores[rank]->Parse(ViewOf(requests), ViewOf(splits), &parsed), OkStatus());
    const std::vector<float> rates = {0.1F};
    return stores[rank]->Update(parsed, ViewOf(gradients), {ViewOf(rates)});
  }

  FakeNetwork network;  // outlives the ranks
  Plan plan;
  std::vector<std::shared_ptr<EmbeddingStore>> stores;
  std::vector<std::shared_ptr<EmbeddingPeer>> peers;

 private:
  static EmbeddingPeer::Callback Keeping(const std::shared_ptr<std::promise<Outcome>>& promise) {
    return [promise](const Status& status, const Payload& rows) {
      const auto* const begin = static_cast<const float*>(rows.data());
      promise->set_value({status, {begin, begin + rows.size() / sizeof(float)}});
    };
  }
};

std::string Text(const Status& status) { return std::string(status.message()); }

std::vector<float> Counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(EmbeddingPeerTest, RowsOfOtherRanksAreReadAndWritten) {
  Job job;
  const EmbeddingBlock block{1, 1, 2, false};
  EXPECT_EQ(Job::Wait(job.Write(0, block, Counted(4))).status, OkStatus());
  const Job::Outcome read = Job::Wait(job.Read(2, block));
  EXPECT_EQ(read.status, OkStatus());
  EXPECT_EQ(read.rows, Counted(4));
  std::vector<float> own(4);
  ASSERT_EQ(job.stores[1]->Read(1, 1, 2, false, own.data()), OkStatus());
  EXPECT_EQ(own, Counted(4));
}

TEST(EmbeddingPeerTest, WhatOptimizersKeepComesWithTheRows) {
  Job job;
  const EmbeddingBlock block{1, 0, 4, true};
  const Job::Outcome before = Job::Wait(job.Read(0, block));
  ASSERT_EQ(before.rows.size(), 16U);
  EXPECT_EQ(before.rows[2], 0.1F) << "Adagrad's accumulator";
  EXPECT_EQ(Job::Wait(job.Write(0, block, Counted(16))).status, OkStatus());
  EXPECT_EQ(Job::Wait(job.Read(0, block)).rows, Counted(16));
}

TEST(EmbeddingPeerTest, NoRowsAreAnAnswerToo) {
  Job job;
  const Job::Outcome read = Job::Wait(job.Read(0, {1, 4, 0, false}));
  EXPECT_EQ(read.status, OkStatus());
  EXPECT_TRUE(read.rows.empty());
}

TEST(EmbeddingPeerTest, AReadWaitsForTheUpdatesThatItsRankHasApplied) {
  Job job;
  ASSERT_EQ(job.Update(0), OkStatus());
  Job::Pending read = job.Read(0, {1, 0, 1, false});
  Job::Pending written = job.Write(0, {1, 0, 1, false}, {5, 6});
  EXPECT_EQ(Job::Wait(job.Read(2, {1, 0, 1, false})).status, OkStatus()) << "it has applied none";
  EXPECT_EQ(read.wait_for(milliseconds(100)), std::future_status::timeout);
  ASSERT_EQ(job.Update(1), OkStatus());
  EXPECT_EQ(Job::Wait(std::move(read)).rows, std::vector<float>({0, 0}));
  EXPECT_EQ(Job::Wait(std::move(written)).status, OkStatus());
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 0, 1, false})).rows, std::vector<float>({5, 6}));
  EXPECT_EQ(job.network.Sent(embeddings::kBehind), 2U);
}

TEST(EmbeddingPeerTest, AnUpdateThatWasRefusedIsWaitedForNoMore) {
  Job job;
  ASSERT_EQ(job.Update(0), OkStatus());
  ASSERT_FALSE(job.Update(1, {1}).ok());
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 0, 1, false})).status, OkStatus());
}

TEST(EmbeddingPeerTest, WhatIsWrongWithARequestIsToldToItsRankAlone) {
  Job job;
  const auto refusal = [](Job::Pending pending) {
    return Text(Job::Wait(std::move(pending)).status);
  };
  EXPECT_THAT(refusal(job.Read(0, {1, 3, 2, false})), HasSubstr("rank 1 refused 2 rows from 3 on"));
  EXPECT_THAT(refusal(job.Read(0, {1, -1, 2, false})), HasSubstr("shard 1 has 4 rows"));
  EXPECT_THAT(refusal(job.Write(0, {1, 0, 2, false}, {1})), HasSubstr("16 bytes, but 4 came"));
  EXPECT_THAT(refusal(job.Read(0, {9, 0, 1, false})), HasSubstr("there is no shard 9"));
  EXPECT_THAT(refusal(job.Read(0, {0, 0, 1, false})), HasSubstr("this rank's own, rank 0"));
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 0, 1, false})).status, OkStatus());
}

TEST(EmbeddingPeerTest, AStoreThatIsGoneIsSaid) {
  Job job;
  ASSERT_EQ(job.Update(0), OkStatus());
  Job::Pending waits = job.Read(0, {1, 0, 1, false});
  job.stores[1].reset();
  EXPECT_THAT(Text(Job::Wait(std::move(waits)).status),
              HasSubstr("rank 1 refused 1 rows from 0 on of shard 1 of embedding table 'users': "
                        "its layer is gone: keep the layer on all ranks"));
  EXPECT_THAT(Text(Job::Wait(job.Read(1, {0, 0, 1, false})).status), HasSubstr("gone on rank 1"));
  ASSERT_EQ(job.Update(2), OkStatus());
  EXPECT_EQ(Job::Wait(job.Read(0, {2, 0, 1, false})).status, OkStatus()) << "the others answer";
}

// Whether a store goes: the thread that lets it go may be any.
bool Goes(const std::weak_ptr<EmbeddingStore>& store) {
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (!store.expired() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return store.expired();
}

TEST(EmbeddingPeerTest, ARetiredStoreIsReadUntilAllHaveRetired) {
  Job job;
  std::vector<std::weak_ptr<EmbeddingStore>> stores(job.stores.begin(), job.stores.end());
  job.peers[1]->Retire(std::move(job.stores[1]));
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 0, 1, false})).status, OkStatus());
  job.peers[2]->Retire(std::move(job.stores[2]));
  EXPECT_EQ(Job::Wait(job.Read(0, {2, 0, 1, false})).status, OkStatus());
  job.peers[0]->Retire(std::move(job.stores[0]));
  for (const auto& store : stores) {
    EXPECT_TRUE(Goes(store));
  }
}

TEST(EmbeddingPeerTest, ARetiredStoreGoesWhenTheJobFails) {
  Job job;
  const std::weak_ptr<EmbeddingStore> store = job.stores[1];
  job.peers[1]->Retire(std::move(job.stores[1]));
  EXPECT_FALSE(store.expired());
  job.peers[1]->Cancel(CancelledError("the session ends"));
  EXPECT_TRUE(Goes(store));
}

TEST(EmbeddingPeerTest, ARankThatDoesNotAnswerIsNamed) {
  Job job(milliseconds(300));
  job.network.SetFault([](const std::string&, const Message& message) {
    return message.header.kind == embeddings::kRead ? Fate::kLose : Fate::kArrive;
  });
  const Status status = Job::Wait(job.Read(0, {2, 0, 1, false})).status;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(status), HasSubstr("of rank 2, which does not answer"));
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 0, 1, false})).status, status) << "as all later ones";
}

TEST(EmbeddingPeerTest, ARankThatStaysBehindIsNamed) {
  Job job(milliseconds(1000));  // in which it says so, on a busy machine too
  ASSERT_EQ(job.Update(0), OkStatus());
  EXPECT_THAT(Text(Job::Wait(job.Read(0, {1, 0, 1, false})).status),
              HasSubstr("of rank 1, which had applied 0 updates, this rank 1"));
}

TEST(EmbeddingPeerTest, ARankThatDiesIsNamed) {
  Job job;
  ASSERT_EQ(job.Update(0), OkStatus());
  Job::Pending read = job.Read(0, {1, 0, 1, false});
  job.network.Cut("rank 1");
  EXPECT_THAT(Text(Job::Wait(std::move(read)).status),
              HasSubstr("the connection to rank 1 was lost"));
}

TEST(EmbeddingPeerTest, WhatIsLostOrComesTwiceIsAnError) {
  for (const Fate fate : {Fate::kLose, Fate::kDouble, Fate::kSwapWithNext}) {
    Job job(milliseconds(500));
    job.network.SetFault([fate](const std::string&, const Message& message) {
      const bool is_hit = message.header.kind == embeddings::kRows && message.header.round == 0;
      return is_hit ? fate : Fate::kArrive;
    });
    Job::Pending first = job.Read(0, {1, 0, 1, false});
    Job::Pending second = job.Read(0, {1, 1, 1, false});
    const Status one = Job::Wait(std::move(first)).status;
    const Status two = Job::Wait(std::move(second)).status;
    EXPECT_FALSE(one.ok() && two.ok() && fate != Fate::kDouble);
    const auto until = std::chrono::steady_clock::now() + kDeadline;
    while (Job::Wait(job.Read(0, {1, 1, 1, false})).status.ok()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nobody has noticed";
    }
  }
}

TEST(EmbeddingPeerTest, ARankThatLeavesStaysUntilItsReadersHaveDone) {
  Job job;
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 0, 1, false})).status, OkStatus());
  std::future<void> leaving = std::async(std::launch::async, [&] { job.peers[1]->Leave(); });
  EXPECT_EQ(leaving.wait_for(milliseconds(200)), std::future_status::timeout);
  EXPECT_EQ(Job::Wait(job.Read(0, {1, 1, 1, false})).status, OkStatus());
  job.peers[0]->Leave();
  EXPECT_EQ(leaving.wait_for(milliseconds(5000)), std::future_status::ready);
  job.peers[1]->Shutdown();
  EXPECT_THAT(Text(Job::Wait(job.Read(2, {1, 0, 1, false})).status),
              HasSubstr("rank 1 has ended its training"));
}

// All ranks read and write each other's rows while all of them train.
TEST(EmbeddingPeerTest, ManyThreadsAtOnce) {
  constexpr int kSteps = 40;
  Job job;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&job, rank] {
      std::mt19937 random(rank);
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_EQ(job.Update(rank), OkStatus());
        const size_t owner = (rank + 1 + random() % (kRanks - 1)) % kRanks;
        const float value = static_cast<float>(rank);
        Job::Pending written = job.Write(rank, {owner, 0, 2, false}, {value, value, value, value});
        const Job::Outcome read = Job::Wait(job.Read(rank, {owner, 0, 2, false}));
        ASSERT_EQ(read.status, OkStatus());
        ASSERT_EQ(read.rows[0], read.rows[3]) << "a block is written as one";
        ASSERT_EQ(Job::Wait(std::move(written)).status, OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace trepak
