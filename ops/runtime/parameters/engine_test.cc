#include "ops/runtime/parameters/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

namespace trepak {
namespace {

Engine::Options OptionsOf(uint32_t rank, uint32_t size, std::vector<uint32_t> servers,
                          bool by_layer = false) {
  static const Secret kSecret = MakeSecret();
  Engine::Options options;
  options.job.rank = rank;
  options.job.size = size;
  options.job.host = "127.0.0.1";
  options.job.secret = kSecret;
  options.job.deadline = std::chrono::milliseconds(20'000);
  options.partition.servers = std::move(servers);
  options.by_layer = by_layer;
  return options;
}

// A job of several engines in one process, over real sockets.
class Job {
 public:
  Job(uint32_t size, const std::vector<uint32_t>& servers, bool by_layer = false) {
    std::vector<std::string> server_addresses;
    std::vector<std::string> client_addresses;
    for (uint32_t rank = 0; rank < size; ++rank) {
      engines.push_back(std::make_unique<Engine>());
      EXPECT_TRUE(engines[rank]->Start(OptionsOf(rank, size, servers, by_layer)).ok());
      server_addresses.push_back(engines[rank]->server_address());
      client_addresses.push_back(engines[rank]->client_address());
    }
    for (auto& engine : engines) {
      const Status status = engine->Connect(server_addresses, client_addresses);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  ~Job() {
    for (auto& engine : engines) engine->Stop();
  }

  std::future<Status> Sum(uint32_t rank, uint32_t key, float value, float expected) {
    const auto client = engines[rank]->client();
    Payload values = Payload::Allocate(4000 * sizeof(float));
    std::fill_n(static_cast<float*>(values.mutable_data()), 4000, value);
    auto promise = std::make_shared<std::promise<Status>>();
    Status status = client->Push(key, engines[rank]->PrecedenceOf(std::to_string(key)), values);
    if (!status.ok()) {
      promise->set_value(status);
      return promise->get_future();
    }
    client->Deliver(key, [promise, expected](const Status& error, Payload result) {
      const auto* floats = static_cast<const float*>(result.data());
      const bool right = result.size() == 4000 * sizeof(float) &&
                         std::all_of(floats, floats + 4000, [&](float f) { return f == expected; });
      promise->set_value(!error.ok() ? error : right ? OkStatus() : InternalError("a wrong sum"));
    });
    return promise->get_future();
  }

  std::vector<std::unique_ptr<Engine>> engines;
};

TEST(EngineTest, SumsOverSockets) {
  for (const std::vector<uint32_t>& servers : {std::vector<uint32_t>{0, 1, 2}, {1}}) {
    Job job(3, servers);
    for (uint32_t key = 0; key < 4; ++key) {
      for (auto& engine : job.engines) {
        ASSERT_TRUE(engine->client()->Register(key, "v", ElementType::kFloat32, 4000).ok());
      }
    }
    for (int round = 0; round < 20; ++round) {
      std::vector<std::future<Status>> sums;
      for (uint32_t key = 0; key < 4; ++key) {
        for (uint32_t rank = 0; rank < 3; ++rank) {
          sums.push_back(job.Sum(rank, key, static_cast<float>(rank + key), 3.0F + 3.0F * key));
        }
      }
      for (auto& sum : sums) {
        const Status status = sum.get();
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    EXPECT_GT(job.engines[0]->BytesByPriority()[0], 0u);
  }
}

TEST(EngineTest, OrderByLayerLeavesTheSumsAlone) {
  Job job(2, {0, 1}, /*by_layer=*/true);
  constexpr uint32_t kVariables = 8;
  for (auto& engine : job.engines) {
    for (uint32_t key = 0; key < kVariables; ++key) {
      const int layer = static_cast<int>(kVariables - key);
      ASSERT_TRUE(engine->map_table().Record(std::to_string(key), {layer, false}).ok());
      EXPECT_EQ(engine->PrecedenceOf(std::to_string(key)).order, layer);
      ASSERT_TRUE(engine->client()->Register(key, "v", ElementType::kFloat32, 4000).ok());
    }
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<std::future<Status>> sums;
    for (uint32_t key = 0; key < kVariables; ++key) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        sums.push_back(job.Sum(rank, key, static_cast<float>(key + rank), 1.0F + 2.0F * key));
      }
    }
    for (auto& sum : sums) {
      const Status status = sum.get();
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

TEST(EngineTest, RankThatEndsIsReportedToAll) {
  Job job(3, {0, 1, 2});
  for (auto& engine : job.engines) {
    ASSERT_TRUE(engine->client()->Register(0, "v", ElementType::kFloat32, 4000).ok());
  }
  std::future<Status> first = job.Sum(0, 0, 1.0F, 3.0F);
  std::future<Status> second = job.Sum(1, 0, 1.0F, 3.0F);
  job.engines[2]->Stop();
  for (std::future<Status>* waiting : {&first, &second}) {
    ASSERT_EQ(waiting->wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_NE(waiting->get().message().find("rank 2"), std::string_view::npos);
  }
}

TEST(EngineTest, StopsAndStartsAgain) {
  for (int turn = 0; turn < 2; ++turn) {
    Engine engine;
    for (int again = 0; again < 3; ++again) {
      ASSERT_TRUE(engine.Start(OptionsOf(0, 1, {0})).ok());
      EXPECT_FALSE(engine.Start(OptionsOf(0, 1, {0})).ok());
      const auto client = engine.client();
      ASSERT_TRUE(engine.Connect({engine.server_address()}, {engine.client_address()}).ok());
      ASSERT_TRUE(client->Register(0, "v", ElementType::kFloat32, 10).ok());
      engine.Stop();
      EXPECT_EQ(client->Push(0, 0, Payload::Allocate(40)).code(), StatusCode::kCancelled);
      EXPECT_EQ(engine.client(), nullptr);
    }
  }
  Engine never;
  never.Stop();
  EXPECT_FALSE(never.Connect({}, {}).ok());
}

}  // namespace
}  // namespace trepak
