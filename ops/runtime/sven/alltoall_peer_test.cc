#include "ops/runtime/sven/alltoall_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <thread>

#include "ops/runtime/net/fake_peers.h"
#include "ops/runtime/sven/alltoall_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kDeadline{20'000};
constexpr size_t kAmpleCredit = 1 << 20;
constexpr AlltoallRows kBytes{ElementType::kNone, 1};

// All ranks of a job in one process.
class Job : public FakePeers<AlltoallPeer> {
 public:
  using Ticket = std::shared_ptr<AlltoallTicket>;

  explicit Job(uint32_t size, size_t credit = kAmpleCredit, milliseconds deadline = kDeadline,
               Timeline* timeline = &Timeline::Global())
      : FakePeers(size, [=](uint32_t rank) {
          return std::make_shared<AlltoallPeer>(Endpoint::Options{rank, size, deadline}, credit,
                                                std::make_shared<ErrorLatch>(), timeline);
        }) {}

  // A rank's splits are texts here.
  Ticket Scatter(uint32_t rank, const std::string& name, const std::vector<std::string>& splits) {
    std::vector<Payload> payloads;
    for (const std::string& split : splits) {
      payloads.push_back(Payload::Copy(split));
    }
    AlltoallInbox::Id id;
    EXPECT_EQ(peer(rank).Scatter(name, kBytes, std::move(payloads), &id), OkStatus());
    return std::make_shared<AlltoallTicket>(shared_peer(rank), id);
  }

  struct Gathered {
    Status status;
    std::vector<std::string> splits;
  };

  static std::future<Gathered> Begin(const Ticket& ticket) {
    auto promise = std::make_shared<std::promise<Gathered>>();
    ticket->Gather([promise](const Status& status, const std::vector<Payload>& splits) {
      Gathered gathered{status, {}};
      for (const Payload& split : splits) {
        gathered.splits.emplace_back(split.view());
      }
      promise->set_value(std::move(gathered));
    });
    return promise->get_future();
  }

  static Gathered Gather(const Ticket& ticket) {
    std::future<Gathered> future = Begin(ticket);
    return future.wait_for(kDeadline) == std::future_status::ready
               ? future.get()
               : Gathered{InternalError("it never ended"), {}};
  }
};

// What `from` sends `to` in an iteration of exchanges: some are empty.
std::string SplitOf(const std::string& name, uint32_t from, uint32_t to, uint64_t iteration) {
  const std::string text =
      name + std::to_string(from) + ">" + std::to_string(to) + "@" + std::to_string(iteration);
  return (from + to + iteration) % 3 == 0 ? "" : text;
}

std::vector<std::string> SplitsOf(const std::string& name, uint32_t from, uint32_t size,
                                  uint64_t iteration) {
  std::vector<std::string> splits;
  for (uint32_t to = 0; to < size; ++to) {
    splits.push_back(SplitOf(name, from, to, iteration));
  }
  return splits;
}

TEST(AlltoallPeerTest, EachRankGetsItsSplitOfAll) {
  Job job(3);
  std::vector<Job::Ticket> tickets;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    tickets.push_back(job.Scatter(rank, "a", SplitsOf("a", rank, 3, 0)));
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const Job::Gathered gathered = Job::Gather(tickets[rank]);
    EXPECT_EQ(gathered.status, OkStatus());
    EXPECT_THAT(gathered.splits, ElementsAre(SplitOf("a", 0, rank, 0), SplitOf("a", 1, rank, 0),
                                             SplitOf("a", 2, rank, 0)));
  }
  EXPECT_EQ(job.peer(0).counters().exchanges, 1u);
}

TEST(AlltoallPeerTest, ARankAloneExchangesWithItself) {
  Job job(1);
  EXPECT_THAT(Job::Gather(job.Scatter(0, "a", {"mine"})).splits, ElementsAre("mine"));
}

TEST(AlltoallPeerTest, TheNextRankComesFirst) {
  Job job(4);
  std::vector<std::string> order;
  std::mutex mutex;
  job.network.SetFault([&](const std::string& to, const Message&) {
    std::lock_guard<std::mutex> lock(mutex);
    order.push_back(to);
    return FakeNetwork::Fate::kArrive;
  });
  const Job::Ticket ticket = job.Scatter(2, "a", {"", "", "", ""});
  std::lock_guard<std::mutex> lock(mutex);
  EXPECT_THAT(order, ElementsAre("peer 3", "peer 0", "peer 1"));
}

// Each rank in a thread of its own, with several exchanges under way, at random times.
TEST(AlltoallPeerTest, ExchangesMeetWhateverTheTimes) {
  constexpr uint32_t kSize = 4;
  constexpr uint64_t kIterations = 60;
  for (const size_t credit : {kAmpleCredit, size_t{200}}) {
    Job job(kSize, credit);
    const auto run = [&](uint32_t rank) {
      std::mt19937 random(rank);
      std::deque<std::tuple<std::string, uint64_t, Job::Ticket>> under_way;
      const auto take = [&](size_t index) {
        const auto [name, iteration, ticket] = under_way[index];
        under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(index));
        const Job::Gathered gathered = Job::Gather(ticket);
        ASSERT_EQ(gathered.status, OkStatus());
        for (uint32_t from = 0; from < kSize; ++from) {
          ASSERT_EQ(gathered.splits[from], SplitOf(name, from, rank, iteration));
        }
      };
      for (uint64_t iteration = 0; iteration < kIterations; ++iteration) {
        std::vector<std::string> names = {"a", "b", "c"};
        std::shuffle(names.begin(), names.end(), random);
        for (const std::string& name : names) {
          under_way.emplace_back(name, iteration,
                                 job.Scatter(rank, name, SplitsOf(name, rank, kSize, iteration)));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        while (under_way.size() > random() % 9) {
          take(random() % under_way.size());
        }
      }
      while (!under_way.empty()) {
        take(0);
      }
    };
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      threads.emplace_back(run, rank);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(job.peer(0).counters().exchanges, 3 * kIterations);
  }
}

TEST(AlltoallPeerTest, WhoIsAheadFillsNoMoreThanItsCredit) {
  constexpr uint64_t kIterations = 50;
  constexpr size_t kCredit = 1000;
  const std::string split(300, 'x');
  Job job(2, kCredit);
  std::vector<Job::Ticket> fast;
  std::vector<Job::Ticket> slow;
  for (uint64_t i = 0; i < kIterations; ++i) {
    fast.push_back(job.Scatter(0, "a", {"", split}));
  }
  job.Settle();
  EXPECT_LE(job.peer(1).counters().most_held, kCredit);
  EXPECT_GT(job.peer(0).counters().held_up, 0u);
  for (uint64_t i = 0; i < kIterations; ++i) {
    slow.push_back(job.Scatter(1, "a", {"", ""}));
    EXPECT_THAT(Job::Gather(slow.back()).splits, ElementsAre(split, ""));
  }
  EXPECT_LE(job.peer(1).counters().most_held, kCredit);
  for (const Job::Ticket& ticket : fast) {
    EXPECT_EQ(Job::Gather(ticket).status, OkStatus());
  }
}

TEST(AlltoallPeerTest, RanksThatTakeNamesInOtherOrdersDoNotWaitForEachOther) {
  const std::string large(5000, 'x');
  Job job(2, /*credit=*/1000);
  const Job::Ticket a0 = job.Scatter(0, "a", {large, large});
  const Job::Ticket b0 = job.Scatter(0, "b", {large, large});
  const Job::Ticket b1 = job.Scatter(1, "b", {large, large});
  EXPECT_EQ(Job::Gather(b1).status, OkStatus());
  const Job::Ticket a1 = job.Scatter(1, "a", {large, large});
  EXPECT_EQ(Job::Gather(a0).status, OkStatus());
  EXPECT_EQ(Job::Gather(b0).status, OkStatus());
  EXPECT_EQ(Job::Gather(a1).status, OkStatus());
}

TEST(AlltoallPeerTest, WhatNobodyAsksForIsLetGo) {
  const std::string split(400, 'x');
  Job job(2, /*credit=*/1000);
  for (int i = 0; i < 20; ++i) {  // the tickets go at once
    job.Scatter(0, "a", {split, split});
    job.Scatter(1, "a", {split, split});
  }
  const Job::Ticket zero = job.Scatter(0, "a", {"00", "01"});
  const Job::Ticket one = job.Scatter(1, "a", {"10", "11"});
  EXPECT_THAT(Job::Gather(zero).splits, ElementsAre("00", "10"));
  EXPECT_THAT(Job::Gather(one).splits, ElementsAre("01", "11"));
  const Job::Gathered again = Job::Gather(one);
  EXPECT_EQ(again.status.code(), StatusCode::kFailedPrecondition);
}

TEST(AlltoallPeerTest, ARankThatLeavesHasSentAll) {
  const std::string split(400, 'x');
  Job job(2, /*credit=*/500);
  std::vector<Job::Ticket> tickets;
  for (int i = 0; i < 10; ++i) {
    tickets.push_back(job.Scatter(0, "a", {"", split}));
  }
  job.peer(0).Leave();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Job::Gather(job.Scatter(1, "a", {"", ""})).splits, ElementsAre(split, ""));
  }
}

TEST(AlltoallPeerTest, SplitsOfAnotherKindAreAnError) {
  Job job(2);
  const Job::Ticket mine = job.Scatter(0, "a", {"00", "01"});
  AlltoallInbox::Id id;
  // It fails at once if rank 0's split is there already.
  const Status scattered = job.peer(1).Scatter("a", {ElementType::kFloat32, 2},
                                               {Payload::Copy("12345678"), Payload()}, &id);
  EXPECT_TRUE(scattered.ok() || scattered.code() == StatusCode::kInvalidArgument);
  // Whoever has seen it first has told the other.
  const Job::Gathered gathered = Job::Gather(mine);
  EXPECT_THAT(std::string(gathered.status.message()),
              HasSubstr("and rank 1 rows of 2 elements of type"));
  AlltoallInbox::Id other;
  EXPECT_FALSE(job.peer(0).Scatter("a", kBytes, {Payload(), Payload()}, &other).ok())
      << "every later call says so, too";
}

TEST(AlltoallPeerTest, WhoIsMissingIsNamed) {
  Job job(3, kAmpleCredit, milliseconds(200));
  job.Scatter(1, "rows", {"", "", ""});
  const Job::Gathered gathered = Job::Gather(job.Scatter(0, "rows", {"", "", ""}));
  EXPECT_EQ(gathered.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(gathered.status.message()),
              HasSubstr("the splits of ranks 2 in the alltoall \"rows\", number 0"));
}

TEST(AlltoallPeerTest, WhoHasEndedIsNamed) {
  Job job(3);
  job.peer(2).Leave();
  const Job::Gathered left = Job::Gather(job.Scatter(0, "a", {"", "", ""}));
  EXPECT_THAT(std::string(left.status.message()), HasSubstr("rank 2 has ended its training"));
}

TEST(AlltoallPeerTest, WhoDiesIsNamed) {
  Job job(3);
  const Job::Ticket ticket = job.Scatter(0, "a", {"", "", ""});
  job.network.Cut("peer 2");
  // It sees that itself, or rank 1 was the first and has told it.
  EXPECT_THAT(std::string(Job::Gather(ticket).status.message()),
              HasSubstr("the connection to rank 2 was lost"));
}

TEST(AlltoallPeerTest, LostAndDoubledMessagesAreErrors) {
  for (const auto fate :
       {FakeNetwork::Fate::kLose, FakeNetwork::Fate::kDouble, FakeNetwork::Fate::kSwapWithNext}) {
    Job job(2);
    int splits = 0;
    job.network.SetFault([&](const std::string& to, const Message& message) {
      return to == "peer 1" && message.header.kind == alltoall::kSplit && splits++ == 1
                 ? fate
                 : FakeNetwork::Fate::kArrive;
    });
    Status status;
    for (int i = 0; i < 4 && status.ok(); ++i) {
      AlltoallInbox::Id id;
      status = job.peer(0).Scatter("a", kBytes, {Payload(), Payload()}, &id);
      job.Settle();
      status = job.peer(1).Scatter("a", kBytes, {Payload(), Payload()}, &id);
      job.Settle();
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0"));
  }
}

TEST(AlltoallPeerTest, ExchangesThatOverlapHaveRowsOfTheirOwnInATimeline) {
  const std::string path = testing::TempDir() + "alltoalls.json";
  Timeline timeline;
  ASSERT_EQ(timeline.Open(path, 0, "ranks", "{}", 0, 0, 1), OkStatus());
  {
    Job job(2, kAmpleCredit, kDeadline, &timeline);
    const Job::Ticket a = job.Scatter(0, "a", {"", ""});
    const Job::Ticket b = job.Scatter(0, "b", {"", ""});
    job.Settle();
    const Job::Ticket others_b = job.Scatter(1, "b", {"", ""});
    const Job::Ticket others_a = job.Scatter(1, "a", {"", ""});
    for (const Job::Ticket& ticket : {a, b, others_a, others_b}) {
      EXPECT_EQ(Job::Gather(ticket).status, OkStatus());
    }
    const Job::Ticket again = job.Scatter(0, "a", {"", ""});
    (void)job.Scatter(1, "a", {"", ""});
    EXPECT_EQ(Job::Gather(again).status, OkStatus());
    job.Settle();
  }
  ASSERT_EQ(timeline.Close(), OkStatus());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("\"name\":\"a\""), 4) << text;
  EXPECT_EQ(count("\"name\":\"b\""), 2) << text;
  // Of rank 0: when it sent, nobody else had; the last splits are rank 1's.
  EXPECT_EQ(count("{\"number\":0,\"last rank\":1},\"pid\":0,\"tid\":1000}"), 2) << text;
  EXPECT_EQ(count("\"tid\":1001}"), 2) << text;
  EXPECT_EQ(count("{\"number\":1,"), 2) << text;
}

// A peer that lies of what it has taken.
TEST(AlltoallPeerTest, ReportsThatCannotBeAreErrors) {
  Job job(2);
  job.network.SetFault(
      [&](const std::string&, const Message&) { return FakeNetwork::Fate::kArrive; });
  AlltoallOutbox outbox(100);
  Message split;
  split.header.key = 1;
  outbox.Add(split);
  EXPECT_EQ(outbox.Admit().size(), 1u);
  EXPECT_EQ(outbox.Take(1, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outbox.Take(2, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(outbox.Take(1, 1).ok());
  EXPECT_EQ(outbox.Take(1, 0).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trepak
