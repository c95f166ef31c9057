#include "ops/runtime/parameters/parameter_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

namespace trepak {
namespace {

ParameterService::Options OptionsOf(uint32_t rank, uint32_t size, std::vector<uint32_t> servers,
                                    bool by_layer = false) {
  static const Secret kSecret = MakeSecret();
  ParameterService::Options options;
  options.job.rank = rank;
  options.job.size = size;
  options.job.host = "127.0.0.1";
  options.job.secret = kSecret;
  options.job.deadline = std::chrono::milliseconds(20'000);
  options.partition.servers = std::move(servers);
  options.by_layer = by_layer;
  return options;
}

// What one process has.
struct Process {
  Status Open(const ParameterService::Options& options) {
    return session->Open(options.job, service.Make(options, session));
  }

  Status Add(uint32_t key) { return variables.Add({key, "v", ElementType::kFloat32, 4000}); }

  VariableTable variables;
  ParameterService service{&variables};
  std::shared_ptr<Session> session = std::make_shared<Session>("the servers");
};

// By part and by rank, where all processes listen.
std::vector<Session::Addresses> AddressesOf(
    const std::vector<std::unique_ptr<Process>>& processes) {
  std::vector<Session::Addresses> addresses(2);
  for (const auto& process : processes) {
    const Session::Addresses here = process->session->addresses();
    for (size_t part = 0; part < addresses.size(); ++part) {
      addresses[part].push_back(here[part]);
    }
  }
  return addresses;
}

// A job of several processes in one, over real sockets.
class Job {
 public:
  Job(uint32_t size, const std::vector<uint32_t>& servers, bool by_layer = false) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      processes.push_back(std::make_unique<Process>());
      EXPECT_TRUE(processes[rank]->Open(OptionsOf(rank, size, servers, by_layer)).ok());
    }
    const std::vector<Session::Addresses> addresses = AddressesOf(processes);
    for (auto& process : processes) {
      const Status status = process->session->Connect(addresses);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  ~Job() {
    for (auto& process : processes) process->session->Close();
  }

  std::future<Status> Sum(uint32_t rank, uint32_t key, float value, float expected) {
    const auto client = processes[rank]->service.client();
    Payload values = Payload::Allocate(4000 * sizeof(float));
    std::fill_n(static_cast<float*>(values.mutable_data()), 4000, value);
    auto promise = std::make_shared<std::promise<Status>>();
    Status status = client->Push(key, processes[rank]->service.PrecedenceOf(key), values);
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

  std::vector<std::unique_ptr<Process>> processes;
};

TEST(ParameterServiceTest, SumsOverSockets) {
  for (const std::vector<uint32_t>& servers : {std::vector<uint32_t>{0, 1, 2}, {1}}) {
    Job job(3, servers);
    for (uint32_t key = 0; key < 4; ++key) {
      for (auto& process : job.processes) {
        ASSERT_TRUE(process->Add(key).ok());
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
    EXPECT_GT(job.processes[0]->service.BytesByPriority()[0], 0u);
  }
}

TEST(ParameterServiceTest, OrderByLayerLeavesTheSumsAlone) {
  Job job(2, {0, 1}, /*by_layer=*/true);
  constexpr uint32_t kVariables = 8;
  for (auto& process : job.processes) {
    for (uint32_t key = 0; key < kVariables; ++key) {
      const int layer = static_cast<int>(kVariables - key);
      ASSERT_TRUE(process->Add(key).ok());
      ASSERT_TRUE(process->variables.Place(key, {layer, false}).ok());
      EXPECT_EQ(process->service.PrecedenceOf(key).order, layer);
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

TEST(ParameterServiceTest, RankThatEndsIsReportedToAll) {
  Job job(3, {0, 1, 2});
  for (auto& process : job.processes) {
    ASSERT_TRUE(process->Add(0).ok());
  }
  std::future<Status> first = job.Sum(0, 0, 1.0F, 3.0F);
  std::future<Status> second = job.Sum(1, 0, 1.0F, 3.0F);
  job.processes[2]->session->Close();
  for (std::future<Status>* waiting : {&first, &second}) {
    ASSERT_EQ(waiting->wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_NE(waiting->get().message().find("rank 2"), std::string_view::npos);
  }
}

TEST(ParameterServiceTest, ClosesAndOpensAgain) {
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<std::unique_ptr<Process>> one;
    one.push_back(std::make_unique<Process>());
    Process& process = *one[0];
    EXPECT_EQ(process.service.client(), nullptr);
    for (int again = 0; again < 3; ++again) {
      ASSERT_TRUE(process.Open(OptionsOf(0, 1, {0})).ok());
      EXPECT_FALSE(process.Open(OptionsOf(0, 1, {0})).ok());
      const auto client = process.service.client();
      ASSERT_TRUE(process.session->Connect(AddressesOf(one)).ok());
      ASSERT_TRUE(process.Add(0).ok());
      process.session->Close();
      EXPECT_EQ(client->Push(0, 0, Payload::Allocate(16'000)).code(), StatusCode::kCancelled);
      EXPECT_EQ(process.service.client(), nullptr);
    }
  }
}

}  // namespace
}  // namespace trepak
