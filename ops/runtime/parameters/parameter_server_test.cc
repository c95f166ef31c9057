#include "ops/runtime/parameters/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "ops/runtime/net/fake_network.h"
#include "ops/runtime/parameters/parameter_client.h"
#include "ops/runtime/parameters/parameter_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

Payload Floats(const std::vector<float>& values) {
  return Payload::Copy(values.data(), values.size() * sizeof(float));
}

std::vector<float> ToFloats(const Payload& payload) {
  const auto* begin = static_cast<const float*>(payload.data());
  return std::vector<float>(begin, begin + payload.size() / sizeof(float));
}

struct Outcome {
  Status status;
  std::vector<float> values;
};

// All ranks of a job in one process: each has a client and a server, as co-hosted in real ones.
class Job {
 public:
  explicit Job(uint32_t size, bool fixed_order = false,
               milliseconds deadline = milliseconds(20'000))
      : size_(size) {
    PartitionOptions partition;
    partition.slice_elements = 3;
    partition.smallest_piece = 2;
    for (uint32_t rank = 0; rank < size; ++rank) {
      partition.servers.push_back(rank);
    }
    ParameterServer::ServerOptions server_options;
    server_options.fixed_order = fixed_order;
    for (uint32_t rank = 0; rank < size; ++rank) {
      auto& one = ranks_.emplace_back(std::make_unique<Rank>());
      const auto errors = std::make_shared<ErrorLatch>();
      const Endpoint::Options options{rank, size, deadline};
      one->server = std::make_unique<ParameterServer>(options, server_options, errors);
      one->client = std::make_unique<ParameterClient>(options, partition, errors, &one->variables);
      servers_.push_back("server " + std::to_string(rank));
      clients_.push_back("client " + std::to_string(rank));
      one->server->Attach(network.Make(servers_.back(), one->server.get()));
      one->client->Attach(network.Make(clients_.back(), one->client.get()));
    }
    for (auto& one : ranks_) {
      EXPECT_TRUE(one->server->Connect(clients_, {0, 0}).ok());
      EXPECT_TRUE(one->client->Connect(servers_, {0, 0}).ok());
    }
  }

  void Register(uint32_t key, size_t elements) {
    for (auto& one : ranks_) {
      ASSERT_TRUE(one->variables.Add({key, Name(key), ElementType::kFloat32, elements}).ok());
    }
  }

  static std::string Name(uint32_t key) { return "variable " + std::to_string(key); }

  Status Push(uint32_t rank, uint32_t key, const std::vector<float>& values, bool pull = true,
              double factor = 1.0) {
    return ranks_[rank]->client->Push(key, key % 2, Floats(values), factor, pull);
  }

  std::future<Outcome> Deliver(uint32_t rank, uint32_t key) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    ranks_[rank]->client->Deliver(key, [promise](const Status& status, Payload result) {
      promise->set_value({status, ToFloats(result)});
    });
    return promise->get_future();
  }

  Outcome Get(uint32_t rank, uint32_t key) {
    std::future<Outcome> future = Deliver(rank, key);
    if (future.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
      return {InternalError("never delivered"), {}};
    }
    return future.get();
  }

  ParameterClient& client(uint32_t rank) { return *ranks_[rank]->client; }
  VariableTable& variables(uint32_t rank) { return ranks_[rank]->variables; }
  uint32_t size() const { return size_; }

 private:
  struct Rank {
    VariableTable variables;
    std::unique_ptr<ParameterServer> server;
    std::unique_ptr<ParameterClient> client;
  };

 public:
  FakeNetwork network;  // outlives the ranks

 private:
  const uint32_t size_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> servers_;
  std::vector<std::string> clients_;
};

TEST(ParameterServerTest, EveryRankGetsTheSum) {
  Job job(3);
  job.Register(0, 20);
  job.Register(1, 1);
  for (int round = 0; round < 5; ++round) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      std::vector<float> values(20);
      for (int i = 0; i < 20; ++i) values[i] = static_cast<float>(100 * rank + i + round);
      ASSERT_TRUE(job.Push(rank, 0, values).ok());
      ASSERT_TRUE(job.Push(rank, 1, {static_cast<float>(rank)}).ok());
    }
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const Outcome large = job.Get(rank, 0);
      ASSERT_TRUE(large.status.ok()) << large.status;
      for (int i = 0; i < 20; ++i) EXPECT_EQ(large.values[i], 300.0F + 3 * i + 3 * round);
      EXPECT_EQ(job.Get(rank, 1).values, std::vector<float>({3}));
    }
  }
}

TEST(ParameterServerTest, NothingComesBeforeTheLastContribution) {
  Job job(2);
  job.Register(0, 10);
  ASSERT_TRUE(job.Push(0, 0, std::vector<float>(10, 1.0F)).ok());
  std::future<Outcome> early = job.Deliver(0, 0);
  EXPECT_EQ(early.wait_for(milliseconds(60)), std::future_status::timeout);
  ASSERT_TRUE(job.Push(1, 0, std::vector<float>(10, 2.0F)).ok());
  EXPECT_EQ(early.get().values, std::vector<float>(10, 3.0F));
  EXPECT_EQ(job.Get(1, 0).values, std::vector<float>(10, 3.0F));
}

TEST(ParameterServerTest, ResultsAreScaledAndDeliveredOnce) {
  Job job(2);
  job.Register(0, 10);
  ASSERT_TRUE(job.Push(0, 0, std::vector<float>(10, 1.0F), true, 0.5).ok());
  ASSERT_TRUE(job.Push(1, 0, std::vector<float>(10, 2.0F), true, 0.5).ok());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(job.Get(rank, 0).values, std::vector<float>(10, 1.5F));
    EXPECT_EQ(job.Get(rank, 0).status.code(), StatusCode::kFailedPrecondition);
  }
}

TEST(ParameterServerTest, PullsMayComeLater) {
  Job job(2);
  job.Register(0, 10);
  ASSERT_TRUE(job.Push(0, 0, std::vector<float>(10, 1.0F), false).ok());
  ASSERT_TRUE(job.client(0).Pull(0, 1).ok());
  EXPECT_FALSE(job.client(0).Pull(0, 1).ok()) << "once";
  ASSERT_TRUE(job.Push(1, 0, std::vector<float>(10, 2.0F), false).ok());
  EXPECT_EQ(job.Get(0, 0).values, std::vector<float>(10, 3.0F));
  ASSERT_TRUE(job.client(1).Pull(0, 1).ok());
  EXPECT_EQ(job.Get(1, 0).values, std::vector<float>(10, 3.0F));
}

TEST(ParameterServerTest, ValuesAreChangedByWhoeverComes) {
  Job job(3);
  job.Register(0, 10);
  ASSERT_TRUE(job.client(1).Assign(0, 0, Floats(std::vector<float>(10, 5.0F))).ok());
  EXPECT_EQ(job.Get(1, 0).values, std::vector<float>(10, 5.0F));
  ASSERT_TRUE(job.client(2).Change(0, 0, Floats(std::vector<float>(10, 2.0F))).ok());
  EXPECT_EQ(job.Get(2, 0).values, std::vector<float>(10, 7.0F));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.client(rank).Fetch(0, 0).ok());
    EXPECT_THAT(std::string(job.client(rank).Fetch(0, 0).message()),
                HasSubstr("ask in one thread at a time"));
    EXPECT_EQ(job.Get(rank, 0).values, std::vector<float>(10, 7.0F));
  }
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::set<float> seen;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(job.client(rank).Change(0, 0, Floats(std::vector<float>(10, 1.0F))).ok());
        const Outcome outcome = job.Get(rank, 0);
        ASSERT_TRUE(outcome.status.ok());
        const std::lock_guard<std::mutex> lock(mutex);
        seen.insert(outcome.values.front());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ASSERT_TRUE(job.client(0).Fetch(0, 0).ok());
  EXPECT_EQ(job.Get(0, 0).values, std::vector<float>(10, 307.0F)) << "none is lost";
  EXPECT_EQ(seen.size(), 300u) << "each sees what its own change has made";
}

TEST(ParameterServerTest, ChangesOfWhatHasNoValueFail) {
  Job job(2);
  job.Register(0, 10);
  ASSERT_TRUE(job.client(1).Change(0, 0, Floats(std::vector<float>(10, 2.0F))).ok());
  EXPECT_THAT(std::string(job.Get(1, 0).status.message()), HasSubstr("has no value yet"));
}

TEST(ParameterServerTest, FixedOrderGivesTheSameBits) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1e8F, 1e8F);
  std::vector<std::vector<float>> gradients(4, std::vector<float>(50));
  for (auto& gradient : gradients) {
    for (float& value : gradient) value = uniform(random) * 1e-3F;
  }
  std::vector<float> expected(50);
  for (int i = 0; i < 50; ++i) {
    expected[i] = ((gradients[0][i] + gradients[1][i]) + gradients[2][i]) + gradients[3][i];
  }
  Job job(4, /*fixed_order=*/true);
  job.Register(0, 50);
  for (int round = 0; round < 4; ++round) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const uint32_t who = (rank + round) % 4;  // other orders of arrival
      ASSERT_TRUE(job.Push(who, 0, gradients[who]).ok());
    }
    for (uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(job.Get(rank, 0).values, expected);
  }
}

TEST(ParameterServerTest, ManyThreadsPushAndWait) {
  Job job(2);
  constexpr uint32_t kKeys = 8;
  for (uint32_t key = 0; key < kKeys; ++key) job.Register(key, 100);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t key = 0; key < kKeys; ++key) {
      threads.emplace_back([&, rank, key] {
        for (int round = 0; round < 50; ++round) {
          const auto value = static_cast<float>(key + round);
          const Status status = job.Push(rank, key, std::vector<float>(100, value));
          const Outcome outcome = job.Get(rank, key);
          if (!status.ok() || outcome.values != std::vector<float>(100, 2 * value)) ++wrong;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ParameterServerTest, MisuseIsAnError) {
  Job job(2);
  job.Register(0, 4);
  EXPECT_EQ(job.Push(0, 1, {1}).code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(job.Push(0, 0, {1}).message()), HasSubstr("which has 4 elements"));
  EXPECT_EQ(job.Get(0, 0).status.code(), StatusCode::kFailedPrecondition) << "nothing pushed";
  ASSERT_TRUE(job.Push(0, 0, {1, 2, 3, 4}).ok());
  EXPECT_THAT(std::string(job.Push(0, 0, {1, 2, 3, 4}).message()), HasSubstr("again before"));
}

// Whatever goes wrong: all ranks get the error, nobody a wrong sum, and nobody waits for long.
class FaultTest : public testing::Test {
 protected:
  void ExpectAllFail(Job* job, const std::vector<std::string>& reasons) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (uint32_t rank = 0; rank < job->size(); ++rank) {
      Status status;
      while (status.ok() && std::chrono::steady_clock::now() < deadline) {
        status = job->Push(rank, 0, std::vector<float>(12, 1.0F));
        if (status.ok()) {
          const Outcome outcome = job->Get(rank, 0);
          status = outcome.status;
          if (status.ok()) {
            EXPECT_EQ(outcome.values, std::vector<float>(12, 2.0F));
          }
        }
      }
      EXPECT_THAT(std::string(status.message()), HasSubstr(reasons[rank])) << rank;
    }
  }
};

class MessageFaultTest : public FaultTest, public testing::WithParamInterface<FakeNetwork::Fate> {};

TEST_P(MessageFaultTest, IsDetectedAndNeverAWrongSum) {
  for (const char* where : {"server 1", "client 0"}) {
    // What is lost shows in the next message of its flow, or, where all wait for it, in the
    // deadline.
    Job job(2, false, milliseconds(500));
    job.Register(0, 12);
    std::atomic<int> messages{0};
    job.network.SetFault([&](const std::string& to, const Message& message) {
      const bool data = message.header.kind != endpoint::kAbort;
      return to == where && data && ++messages == 6 ? GetParam() : FakeNetwork::Fate::kArrive;
    });
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Status status;
        for (int round = 0; round < 10 && status.ok(); ++round) {
          status = job.Push(rank, 0, std::vector<float>(12, 1.0F));
          if (!status.ok()) break;
          const Outcome outcome = job.Get(rank, 0);
          status = outcome.status;
          if (status.ok()) {
            EXPECT_EQ(outcome.values, std::vector<float>(12, 2.0F));
          }
        }
        EXPECT_THAT(std::string(status.message()),
                    AnyOf(HasSubstr("lost, doubled or overtaken"), HasSubstr("server waited")));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(messages, 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, MessageFaultTest,
                         testing::Values(FakeNetwork::Fate::kLose, FakeNetwork::Fate::kDouble,
                                         FakeNetwork::Fate::kSwapWithNext));

TEST_F(FaultTest, CutServerIsNamedEverywhere) {
  Job job(2);
  job.Register(0, 12);
  ASSERT_TRUE(job.Push(0, 0, std::vector<float>(12, 1.0F)).ok());
  std::future<Outcome> waiting = job.Deliver(0, 0);
  job.network.Cut("server 1");
  ASSERT_EQ(waiting.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_THAT(std::string(waiting.get().status.message()),
              HasSubstr("the connection to rank 1 was lost"));
  ExpectAllFail(&job, {"the connection to rank 1 was lost", "rank 1"});
}

TEST_F(FaultTest, RankThatNeverPushesIsNamed) {
  Job job(2, false, milliseconds(200));
  job.Register(0, 12);
  ASSERT_TRUE(job.Push(0, 0, std::vector<float>(12, 1.0F)).ok());
  const Outcome outcome = job.Get(0, 0);
  EXPECT_THAT(std::string(outcome.status.message()),
              HasSubstr("for rank 1 to push variable 0 in round 0"));
}

TEST_F(FaultTest, ModelsThatDifferAreAnError) {
  Job job(2);
  ASSERT_TRUE(job.variables(0).Add({0, "w", ElementType::kFloat32, 12}).ok());
  ASSERT_TRUE(job.variables(1).Add({0, "w", ElementType::kFloat32, 10}).ok());
  ASSERT_TRUE(job.Push(0, 0, std::vector<float>(12, 1.0F)).ok());
  ASSERT_TRUE(job.Push(1, 0, std::vector<float>(10, 1.0F)).ok());
  EXPECT_THAT(std::string(job.Get(0, 0).status.message()), HasSubstr("the same model"));
  EXPECT_THAT(std::string(job.Get(1, 0).status.message()), HasSubstr("the same model"));
}

}  // namespace
}  // namespace trepak
