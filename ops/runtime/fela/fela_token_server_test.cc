#include "ops/runtime/fela/fela_token_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_chunk_messages.h"
#include "ops/runtime/fela/fela_messages.h"
#include "ops/runtime/fela/fela_peer_testing.h"
#include "ops/runtime/fela/fela_worker.h"

namespace trepak {
namespace {

using Event = FelaWorker::Event;
using std::chrono::milliseconds;

constexpr milliseconds kShort{1000};  // but longer than a busy machine has a thread stand still

// A job of Fela in one process: a token server, and workers with their peers.
class FelaJob {
 public:
  explicit FelaJob(FelaRules rules, milliseconds deadline = FelaPeers::kDeadline)
      : rules_(std::move(rules)), peers_(size(), 2, deadline) {
    const auto errors = std::make_shared<ErrorLatch>();
    server_ =
        std::make_shared<FelaTokenServer>(Endpoint::Options{0, size(), deadline}, rules_, errors);
    server_->Attach(network().Make("server", server_.get()));
    std::vector<std::string> addresses;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      addresses.push_back("worker " + std::to_string(rank));
      workers_.push_back(std::make_shared<FelaWorker>(
          Endpoint::Options{rank, size(), deadline}, 0, rules_, peers_.shared_peer(rank),
          rank == 0 ? errors : std::make_shared<ErrorLatch>()));
      workers_.back()->Attach(network().Make(addresses.back(), workers_.back().get()));
    }
    for (auto& worker : workers_) {
      EXPECT_EQ(worker->Connect({"server"}, {0}), OkStatus());
    }
    EXPECT_EQ(server_->Connect(addresses, {0}), OkStatus());
  }

  ~FelaJob() {
    for (auto& worker : workers_) {
      worker->Cancel(CancelledError("the test is over"));
      worker->Shutdown();
    }
    server_->Cancel(CancelledError("the test is over"));
    server_->Shutdown();
  }

  uint32_t size() const { return static_cast<uint32_t>(rules_.batches.size()); }
  FakeNetwork& network() { return peers_.network; }
  FelaTokenServer& server() { return *server_; }
  FelaWorker& worker(uint32_t rank) { return *workers_[rank]; }

  std::pair<Status, Event> Next(uint32_t rank) {
    auto promise = std::make_shared<std::promise<std::pair<Status, Event>>>();
    auto future = promise->get_future();
    workers_[rank]->Next([promise](const Status& status, const Event& event) {
      promise->set_value({status, event});
    });
    return future.wait_for(2 * FelaPeers::kDeadline) == std::future_status::ready
               ? future.get()
               : std::pair<Status, Event>{InternalError("it never ended"), {}};
  }

  // This rank's samples are there for others.
  void Begin(uint32_t rank) {
    for (const FelaPlan::Part& part : workers_[rank]->Prepare(rules_.batches[rank])) {
      for (const FelaChunkKind kind : {FelaChunkKind::kSamples, FelaChunkKind::kLabels}) {
        EXPECT_EQ(peers_.Put(rank, {workers_[rank]->iteration(), part.token, kind}), OkStatus());
      }
    }
    EXPECT_EQ(workers_[rank]->Begin(rules_.batches[rank]), OkStatus());
  }

  // What a Trainer does in an iteration: reads what it is told, and makes what others need. May
  // stop before a token that reads what others have.
  Event Train(uint32_t rank, bool reads_from_others = true) {
    needs_[rank].clear();
    Begin(rank);
    EXPECT_EQ(workers_[rank]->Request(), OkStatus());
    while (true) {
      const auto [status, event] = Next(rank);
      EXPECT_EQ(status, OkStatus());
      if (!status.ok() || event.kind == Event::Kind::kOver) {
        return event;
      }
      if (event.kind == Event::Kind::kToken) {
        const auto& inputs = event.token.inputs;
        const auto is_remote = [rank](const auto& input) { return input.holder != rank; };
        if (!reads_from_others && std::any_of(inputs.begin(), inputs.end(), is_remote)) {
          return event;
        }
        TrainToken(rank, event.token);
      }
    }
  }

  // What comes next, trained if it is a token of the iteration that the rank is in.
  std::pair<Status, Event> TrainNext(uint32_t rank) {
    auto next = Next(rank);
    if (next.first.ok() && next.second.kind == Event::Kind::kToken) {
      EXPECT_EQ(next.second.iteration, workers_[rank]->iteration());
      TrainToken(rank, next.second.token);
    }
    return next;
  }

  Taken TakeInputs(uint32_t rank, const FelaScheduler::Assignment& token) {
    std::vector<FelaPeer::Wanted> wanted;
    for (const FelaScheduler::Input& input : token.inputs) {
      wanted.push_back({{workers_[rank]->iteration(), input.token, input.kind}, input.holder});
    }
    Taken taken = peers_.Take(rank, wanted);
    for (size_t i = 0; taken.status.ok() && i < wanted.size(); ++i) {
      EXPECT_EQ(taken.Content(i), ContentOf(wanted[i].name));
    }
    return taken;
  }

 private:
  void TrainToken(uint32_t rank, const FelaScheduler::Assignment& token) {
    const uint64_t iteration = workers_[rank]->iteration();
    const FelaPlan plan(rules_);
    EXPECT_EQ(TakeInputs(rank, token).status, OkStatus());
    std::vector<uint32_t>& needs = needs_[rank][token.token];
    for (const FelaScheduler::Input& input : token.inputs) {
      if (input.kind == FelaChunkKind::kOutput) {
        needs.push_back(input.token);
      }
    }
    if (token.stage < plan.submodels()) {
      EXPECT_EQ(peers_.Put(rank, {iteration, token.token, FelaChunkKind::kOutput}), OkStatus());
    } else if (plan.SubmodelOf(token.stage) > 1) {
      const bool kept = plan.IsBackward(token.stage) && !token.recomputes;
      for (const uint32_t need : kept ? needs_[rank][plan.ForwardOf(token.token)] : needs) {
        EXPECT_EQ(peers_.Put(rank, {iteration, need, FelaChunkKind::kGradient}), OkStatus());
      }
    }
    const double loss = token.stage == plan.submodels() ? 0.5 * token.samples : 0;
    EXPECT_EQ(workers_[rank]->Report(token.token, loss), OkStatus());
  }

  const FelaRules rules_;
  FelaPeers peers_;
  std::shared_ptr<FelaTokenServer> server_;
  std::vector<std::shared_ptr<FelaWorker>> workers_;
  // By rank, which one thread is: of forward tokens, those that they were made of.
  std::map<uint32_t, std::map<uint32_t, std::vector<uint32_t>>> needs_{
      {0, {}}, {1, {}}, {2, {}}, {3, {}}};
};

FelaRules Rules(std::vector<uint32_t> batches) {
  FelaRules rules;
  rules.batches = std::move(batches);
  rules.threshold = 2;
  rules.weights = {1, 2, 4};
  return rules;
}

TEST(FelaTokenServerTest, WorkersTrainAllIterationsTogether) {
  FelaJob job(Rules({8, 7, 0, 5}));
  std::vector<std::thread> trainers;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    trainers.emplace_back([&job, rank] {
      for (int iteration = 0; iteration < 20; ++iteration) {
        const Event over = job.Train(rank);
        EXPECT_EQ(over.samples, 20U);
        EXPECT_DOUBLE_EQ(over.loss, 10.0);
      }
    });
  }
  for (std::thread& trainer : trainers) {
    trainer.join();
  }
  EXPECT_EQ(job.server().counters().iterations, 20U);
  uint64_t tokens = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    tokens += job.worker(rank).counters().tokens;
  }
  EXPECT_EQ(tokens, job.server().counters().tokens);
}

TEST(FelaTokenServerTest, WhoStandsStillIsNotWaitedFor) {
  FelaJob job(Rules({4, 4}));
  job.Begin(1);
  auto sleeper = std::async(std::launch::async,
                            [&job] { return job.worker(1).StandStill(FelaPeers::kDeadline); });
  EXPECT_EQ(job.Train(0).samples, 8U);
  EXPECT_TRUE(sleeper.get());  // long before the time has passed
  EXPECT_EQ(job.worker(1).counters().tokens, 0U);
}

TEST(FelaTokenServerTest, WhoIsBackInTimeGoesOn) {
  FelaJob job(Rules({4, 4}));
  job.Begin(1);
  EXPECT_FALSE(job.worker(1).StandStill(milliseconds(1)));
}

TEST(FelaTokenServerTest, WhoDoesNotBeginIsNamed) {
  FelaJob job(Rules({4, 4}), kShort);
  job.Begin(0);
  ASSERT_EQ(job.worker(0).Request(), OkStatus());
  Status status;
  while (status.ok()) {
    const auto [failed, event] = job.Next(0);
    status = failed;
    if (status.ok() && event.kind == Event::Kind::kToken) {
      ASSERT_EQ(job.worker(0).Report(event.token.token, 0), OkStatus());
    }
  }
  EXPECT_NE(status.message().find("rank 1 to begin the iteration"), std::string::npos)
      << status.message();
}

TEST(FelaTokenServerTest, WhoKeepsATokenIsNamed) {
  FelaJob job(Rules({4, 4}), kShort);
  job.Begin(0);
  job.Begin(1);
  ASSERT_EQ(job.worker(1).Request(), OkStatus());
  const auto [given, event] = job.Next(1);
  ASSERT_EQ(given, OkStatus());
  const auto [status, none] = job.Next(0);
  EXPECT_NE(status.message().find("rank 1 to train token " + std::to_string(event.token.token)),
            std::string::npos)
      << status.message();
}

TEST(FelaTokenServerTest, WhoIsLetAheadAndDoesNotComeBackIsNamed) {
  FelaRules rules = Rules({2, 2});
  rules.weights = {1, 2};
  rules.recompute = false;
  rules.staleness = 1;
  FelaJob job(rules, kShort);
  for (const uint32_t rank : {1U, 0U}) {
    job.Begin(rank);
    ASSERT_EQ(job.worker(rank).Request(), OkStatus());
    EXPECT_EQ(job.TrainNext(rank).second.kind, Event::Kind::kToken);
  }
  EXPECT_EQ(job.TrainNext(1).second.kind, Event::Kind::kAhead);  // and has a backward token to come
  Status status;
  std::vector<Event::Kind> events;
  while (status.ok() && events.size() < 10) {
    const auto [failed, event] = job.TrainNext(0);
    status = failed;
    if (status.ok()) {
      events.push_back(event.kind);
    }
    if (status.ok() && event.kind == Event::Kind::kAhead) {
      job.Begin(0);
      ASSERT_EQ(job.worker(0).Request(), OkStatus());
    }
  }
  using Kind = Event::Kind;  // the loss, its backward token; of iteration 1 its first one
  EXPECT_EQ(events, (std::vector<Kind>{Kind::kToken, Kind::kToken, Kind::kTrained, Kind::kAhead,
                                       Kind::kToken}));
  EXPECT_NE(status.message().find("rank 1 to come back to the tokens that others wait for"),
            std::string::npos)
      << status.message();
}

TEST(FelaTokenServerTest, WhoAloneMayTrainASubModelAndDoesNotAskIsNamed) {
  FelaRules rules = Rules({4, 4});
  rules.subsets = {{}, {}, {0}};
  FelaJob job(rules, kShort);
  job.Begin(0);
  job.Begin(1);
  ASSERT_EQ(job.worker(1).Request(), OkStatus());
  Status status;
  while (status.ok()) {
    status = job.TrainNext(1).first;
  }
  EXPECT_NE(status.message().find("rank 0 to come back to the tokens that others wait for"),
            std::string::npos)
      << status.message();
}

TEST(FelaTokenServerTest, WhoHasWaitedForAnotherIsNotLateByThat) {
  const milliseconds pause(650);
  FelaRules rules = Rules({2, 2, 2});
  rules.weights = {1, 1, 1};  // a worker trains its samples' tokens alone, and then says nothing
  FelaJob job(rules, milliseconds(1000));
  job.network().SetTick(milliseconds(100));  // as sockets do
  std::vector<std::thread> trainers;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    trainers.emplace_back([&job, pause, rank] {
      for (const uint32_t late : {1U, 2U}) {
        std::this_thread::sleep_for(rank == late ? pause : milliseconds(0));
        EXPECT_EQ(job.Train(rank).kind, Event::Kind::kOver);
      }
    });
  }
  for (std::thread& trainer : trainers) {
    trainer.join();
  }
}

TEST(FelaTokenServerTest, APauseOfAllThatIsLongerThanTheDeadlineHasNobodyWait) {
  constexpr milliseconds kDeadline{600};
  FelaRules rules = Rules({2, 2});
  rules.weights = {1, 2};
  rules.recompute = false;
  rules.staleness = 1;
  FelaJob job(rules, kDeadline);
  std::vector<std::thread> trainers;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    trainers.emplace_back([&job, rank] {
      job.Begin(rank);
      EXPECT_EQ(job.worker(rank).Request(/*to_the_end=*/true), OkStatus());
      while (job.TrainNext(rank).second.kind != Event::Kind::kOver) {
      }
    });
  }
  for (std::thread& trainer : trainers) {
    trainer.join();
  }
  std::this_thread::sleep_for(2 * kDeadline);  // as in an evaluation
  const auto began = std::chrono::steady_clock::now();
  Status status;
  for (Event::Kind kind = Event::Kind::kAhead; status.ok();) {
    if (kind == Event::Kind::kAhead) {
      job.Begin(0);
      ASSERT_EQ(job.worker(0).Request(), OkStatus());
    }
    const auto [failed, event] = job.TrainNext(0);
    status = failed;
    kind = event.kind;
  }
  EXPECT_GE(std::chrono::steady_clock::now() - began, kDeadline);
  EXPECT_NE(status.message().find("rank 1 to begin the iteration"), std::string::npos)
      << status.message();
}

TEST(FelaTokenServerTest, WhoWaitsForChunksIsTheFirstToSayWhoDoesNotSend) {
  FelaJob job(Rules({4, 4}), milliseconds(600));
  job.network().SetFault([](const std::string&, const Message& message) {
    return message.header.kind == fela::kChunk ? FakeNetwork::Fate::kLose
                                               : FakeNetwork::Fate::kArrive;
  });
  job.Begin(1);
  const Event last = job.Train(0, false);
  ASSERT_EQ(last.kind, Event::Kind::kToken);
  auto told = std::async(std::launch::async, [&job] { return job.Next(0).first; });
  const Taken taken = job.TakeInputs(0, last.token);
  EXPECT_NE(taken.message().find("rank 1 to send"), std::string::npos) << taken.message();
  EXPECT_EQ(told.wait_for(milliseconds(0)), std::future_status::timeout) << "not yet";
  const Status status = told.get();
  EXPECT_NE(status.message().find("for rank 0 to train token " + std::to_string(last.token.token) +
                                  ", which reads chunks of rank 1"),
            std::string::npos)
      << status.message();
}

TEST(FelaTokenServerTest, TheServersDeathIsToldToAll) {
  FelaJob job(Rules({4, 4}));
  auto waiting = std::async(std::launch::async, [&job] { return job.Next(1).first; });
  job.network().Cut("server");
  const Status status = waiting.get();
  EXPECT_FALSE(status.ok());  // by its own flow, or by another worker that saw it first
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace trepak
