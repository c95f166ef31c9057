#include "ops/runtime/fela/fela_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/runtime/fela/fela_peer_testing.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;

constexpr FelaChunkName kName{0, 7, FelaChunkKind::kOutput};

size_t BytesOf(const FelaChunkName& name) {
  size_t bytes = 0;
  for (const std::string& text : ContentOf(name)) {
    bytes += text.size();
  }
  return bytes;
}

TEST(FelaPeerTest, AChunkGoesToWhoseTokenNeedsIt) {
  FelaPeers job(3);
  ASSERT_EQ(job.Put(1, kName), OkStatus());
  auto taken = job.Begin(2, {{kName, 1}});
  EXPECT_FALSE(FelaPeers::IsOver(taken));
  ASSERT_EQ(job.peer(1).SendTo(kName, 2), OkStatus());
  const Taken got = FelaPeers::End(std::move(taken));
  ASSERT_EQ(got.status, OkStatus());
  EXPECT_EQ(got.Content(0), ContentOf(kName));
  EXPECT_EQ(job.peer(1).counters().chunks_sent, 1u);
  EXPECT_EQ(job.peer(1).counters().bytes_sent, BytesOf(kName));
  EXPECT_EQ(job.peer(2).counters().chunks_received, 1u);
  EXPECT_EQ(job.peer(2).counters().bytes_received, BytesOf(kName));
  EXPECT_EQ(job.peer(2).counters().bytes_held, BytesOf(kName));
  EXPECT_EQ(job.peer(2).counters().chunks_local, 0u);
  EXPECT_GT(job.peer(2).counters().waiting_seconds, 0);
  EXPECT_EQ(job.peer(0).counters().bytes_received, 0u);
}

TEST(FelaPeerTest, WhatIsHereIsPassedAtOnceWithoutACopy) {
  FelaPeers job(1);
  const FelaTensors tensors{Payload::Copy("abc"), Payload::Copy("d")};
  ASSERT_EQ(job.peer(0).Put(kName, tensors), OkStatus());
  auto taken = job.Begin(0, {{kName, 0}, {kName, 0}});
  ASSERT_TRUE(FelaPeers::IsOver(taken));
  const Taken got = taken.get();
  ASSERT_EQ(got.chunks.size(), 2u);
  EXPECT_EQ(got.chunks[1][0].data(), tensors[0].data());
  EXPECT_EQ(got.chunks[1][1].data(), tensors[1].data());
  EXPECT_EQ(job.peer(0).counters().chunks_local, 2u);
}

TEST(FelaPeerTest, WhatComesBeforeItIsTakenIsKept) {
  FelaPeers job(2);
  const FelaChunkName next{1, 0, FelaChunkKind::kSamples};
  for (const FelaChunkName& name : {kName, next}) {
    ASSERT_EQ(job.Put(0, name), OkStatus());
    ASSERT_EQ(job.peer(0).SendTo(name, 1), OkStatus());
  }
  job.Settle();
  auto taken = job.Begin(1, {{kName, 0}, {next, 0}});
  ASSERT_TRUE(FelaPeers::IsOver(taken));
  EXPECT_EQ(taken.get().Content(1), ContentOf(next));
  EXPECT_EQ(job.Take(1, {{kName, 0}}).Content(0), ContentOf(kName)) << "it stays here";
}

TEST(FelaPeerTest, AChunkIsSentToARankOnce) {
  FelaPeers job(3);
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  for (const uint32_t rank : {1u, 1u, 0u, 2u, 1u}) {
    EXPECT_EQ(job.peer(0).SendTo(kName, rank), OkStatus());
  }
  EXPECT_EQ(job.network.Sent(fela::kChunk), 2 * ContentOf(kName).size());
  EXPECT_EQ(job.peer(0).counters().chunks_sent, 2u);
}

// While one token is trained, what the next one needs is fetched.
TEST(FelaPeerTest, SeveralMayBeUnderWay) {
  FelaPeers job(2);
  const FelaChunkName other{0, 8, FelaChunkKind::kGradient};
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  ASSERT_EQ(job.Put(0, other), OkStatus());
  auto both = job.Begin(1, {{kName, 0}, {other, 0}});
  auto second = job.Begin(1, {{other, 0}});
  ASSERT_EQ(job.peer(0).SendTo(other, 1), OkStatus());
  EXPECT_EQ(FelaPeers::End(std::move(second)).Content(0), ContentOf(other));
  EXPECT_FALSE(FelaPeers::IsOver(both));
  ASSERT_EQ(job.peer(0).SendTo(kName, 1), OkStatus());
  const Taken got = FelaPeers::End(std::move(both));
  EXPECT_EQ(got.Content(0), ContentOf(kName));
  EXPECT_EQ(got.Content(1), ContentOf(other));
}

// A token that was given to a second worker, which has completed it before the first one has sent.
TEST(FelaPeerTest, WhatThisWorkerHasMadeItNeedNotWaitFor) {
  FelaPeers job(2);
  auto taken = job.Begin(0, {{kName, 1}});
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  ASSERT_TRUE(FelaPeers::IsOver(taken));
  EXPECT_EQ(taken.get().Content(0), ContentOf(kName));
}

TEST(FelaPeerTest, WhatWasDroppedIsNoLongerHeldAndSentAgainWhenMadeAgain) {
  FelaPeers job(2);
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  ASSERT_EQ(job.peer(0).SendTo(kName, 1), OkStatus());
  job.Settle();
  for (const uint32_t rank : {0u, 1u}) {
    job.peer(rank).DropBefore(1);
    EXPECT_EQ(job.peer(rank).counters().bytes_held, 0u);
    EXPECT_EQ(job.peer(rank).counters().most_bytes_held, BytesOf(kName));
  }
  const FelaChunkName next{1, kName.token, kName.kind};
  ASSERT_EQ(job.Put(0, next), OkStatus());
  ASSERT_EQ(job.peer(0).SendTo(next, 1), OkStatus());
  EXPECT_EQ(job.Take(1, {{next, 0}}).Content(0), ContentOf(next));
}

TEST(FelaPeerTest, ChunksOfDroppedIterationsAreIgnored) {
  FelaPeers job(2);
  job.peer(1).DropBefore(1);
  ASSERT_EQ(job.Put(0, kName), OkStatus());
  ASSERT_EQ(job.peer(0).SendTo(kName, 1), OkStatus());
  job.Settle();
  EXPECT_EQ(job.peer(1).counters().chunks_received, 0u);
  EXPECT_EQ(job.peer(1).counters().bytes_held, 0u);
  EXPECT_EQ(job.Put(1, {1, 1, FelaChunkKind::kLabels}), OkStatus()) << "it was no error";
}

// A random iteration: who holds which chunk, and who takes them in which order.
class Iteration {
 public:
  static constexpr uint32_t kSize = 5;
  static constexpr uint32_t kTokens = 12;

  Iteration(uint64_t number, uint32_t me) : me_(me), random_(me) {
    std::mt19937 holders(static_cast<uint32_t>(number));  // on all ranks the same
    for (uint32_t token = 0; token < kTokens; ++token) {
      for (const FelaChunkKind kind : {FelaChunkKind::kOutput, FelaChunkKind::kGradient}) {
        all_.push_back({{number, token, kind}, static_cast<uint32_t>(holders() % kSize)});
      }
    }
    std::shuffle(all_.begin(), all_.end(), random_);
  }

  // How many chunks this rank gets from others.
  uint64_t foreign() const { return all_.size() - Mine().size(); }

  void Run(FelaPeers* job) {
    std::vector<std::pair<FelaPeer::Wanted, std::future<Taken>>> early;
    for (const FelaPeer::Wanted& one : all_) {
      if (one.holder != me_ && random_() % 2 == 0) {
        early.emplace_back(one, job->Begin(me_, {one}));
      }
    }
    for (const FelaChunkName& name : Mine()) {
      EXPECT_EQ(job->Put(me_, name), OkStatus());
      for (uint32_t i = 0; i < 2 * kSize; ++i) {
        EXPECT_EQ(job->peer(me_).SendTo(name, (me_ + i) % kSize), OkStatus());
      }
    }
    for (auto& [one, taking] : early) {
      Check(FelaPeers::End(std::move(taking)), {one});
    }
    Check(job->Take(me_, all_), all_);
  }

 private:
  std::vector<FelaChunkName> Mine() const {
    std::vector<FelaChunkName> mine;
    for (const FelaPeer::Wanted& one : all_) {
      if (one.holder == me_) {
        mine.push_back(one.name);
      }
    }
    return mine;
  }

  static void Check(const Taken& got, const std::vector<FelaPeer::Wanted>& wanted) {
    ASSERT_EQ(got.status, OkStatus());
    ASSERT_EQ(got.chunks.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(got.Content(i), ContentOf(wanted[i].name));
    }
  }

  const uint32_t me_;
  std::mt19937 random_;
  std::vector<FelaPeer::Wanted> all_;
};

// Ranks go at their own pace, as far as what they wait for lets them.
void TrainTogether(FelaPeers* job, uint64_t iterations) {
  std::vector<std::thread> workers;
  std::vector<uint64_t> foreign(Iteration::kSize);
  for (uint32_t me = 0; me < Iteration::kSize; ++me) {
    workers.emplace_back([job, me, iterations, &foreign] {
      for (uint64_t number = 0; number < iterations; ++number) {
        job->peer(me).DropBefore(number);
        Iteration iteration(number, me);
        iteration.Run(job);
        foreign[me] += iteration.foreign();
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  for (uint32_t rank = 0; rank < Iteration::kSize; ++rank) {
    const FelaPeer::Counters counters = job->peer(rank).counters();
    EXPECT_EQ(counters.chunks_received, foreign[rank]);
    EXPECT_GE(counters.most_bytes_held, counters.bytes_held);
  }
}

TEST(FelaPeerTest, AllGetWhatTheyNeedWhateverTheOrder) {
  FelaPeers job(Iteration::kSize);
  TrainTogether(&job, 8);
}

TEST(FelaPeerTest, AllGetWhatTheyNeedWhateverTheDelays) {
  FelaPeers job(Iteration::kSize);
  std::mt19937 random(7);  // under the network's lock
  job.network.SetFault([&random](const std::string&, const Message&) {
    if (random() % 10 == 0) {
      std::this_thread::sleep_for(milliseconds(random() % 4));
    }
    return FakeNetwork::Fate::kArrive;
  });
  TrainTogether(&job, 3);
}

// What was ordered before is sent whole; what comes later is an error.
TEST(FelaPeerTest, WhatWasOrderedIsSentBeforeARankLeaves) {
  for (int i = 0; i < 30; ++i) {
    FelaPeers job(2);
    for (uint32_t token = 0; token < 40; ++token) {
      ASSERT_EQ(job.Put(0, {0, token, FelaChunkKind::kOutput}), OkStatus());
    }
    std::vector<std::future<Taken>> takings;
    for (uint32_t token = 0; token < 40; ++token) {
      takings.push_back(job.Begin(1, {{{0, token, FelaChunkKind::kOutput}, 0}}));
    }
    uint32_t ordered = 0;
    std::thread server([&] {
      while (ordered < 40 && job.peer(0).SendTo({0, ordered, FelaChunkKind::kOutput}, 1).ok()) {
        ++ordered;
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    job.peer(0).Leave();
    server.join();
    for (uint32_t token = 0; token < 40; ++token) {
      EXPECT_EQ(FelaPeers::End(std::move(takings[token])).status.ok(), token < ordered);
    }
    EXPECT_EQ(job.peer(1).counters().chunks_received, ordered);
  }
}

}  // namespace
}  // namespace trepak
