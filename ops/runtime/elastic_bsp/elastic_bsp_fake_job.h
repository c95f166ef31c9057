// A job of ElasticBSP, SSP or ASP in one process, for tests.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_FAKE_JOB_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_FAKE_JOB_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/elastic_bsp/elastic_bsp_coordinator.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_worker.h"
#include "ops/runtime/net/fake_network.h"
#include "ops/runtime/parameters/fake_parameters.h"

namespace trepak {

constexpr std::chrono::milliseconds kJobDeadline{20'000};

struct Outcome {
  Status status;
  float value = 0;
};

// What one rank sees of the job's parameters: it may wait long for them.
class HeldParameters : public GlobalParameters {
 public:
  explicit HeldParameters(std::shared_ptr<GlobalParameters> all) : all_(std::move(all)) {}

  void HoldFetches() { holds_fetches_ = true; }
  void HoldChanges() { holds_changes_ = true; }
  void Release() {
    holds_fetches_ = holds_changes_ = false;
    std::vector<std::function<void()>> requests;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      requests.swap(requests_);
    }
    for (const std::function<void()>& request : requests) {
      request();
    }
  }

  void Assign(Payload values, Callback callback) override {
    all_->Assign(std::move(values), std::move(callback));
  }
  void Change(Payload change, uint32_t ranks, uint64_t samples, Callback callback) override {
    Ask(holds_changes_,
        [this, change = std::move(change), ranks, samples, callback = std::move(callback)] {
          all_->Change(change, ranks, samples, callback);
        });
  }
  void Fetch(Callback callback) override {
    Ask(holds_fetches_, [this, callback = std::move(callback)] { all_->Fetch(callback); });
  }

 private:
  void Ask(bool later, std::function<void()> request) {
    if (!later) {
      request();
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(std::move(request));
  }

  const std::shared_ptr<GlobalParameters> all_;
  std::atomic<bool> holds_fetches_{false};
  std::atomic<bool> holds_changes_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> requests_;  // Guarded by mutex_.
};

// All ranks of a job in one process; parameters are one number.
class Job {
 public:
  Job(uint32_t size, ElasticBspScheduler::Rules rules,
      std::chrono::milliseconds deadline = kJobDeadline)
      : size_(size) {
    rules.workers = size;
    ElasticBspWorker::Rules worker_rules;
    worker_rules.elements = 1;
    std::vector<std::string> addresses;
    for (uint32_t rank = 0; rank < size; ++rank) {
      auto errors = std::make_shared<ErrorLatch>();
      const Endpoint::Options options{rank, size, deadline};
      addresses.push_back("worker " + std::to_string(rank));
      seen_.push_back(std::make_shared<HeldParameters>(parameters_));
      workers_.push_back(
          std::make_shared<ElasticBspWorker>(options, worker_rules, 0, seen_.back(), errors));
      workers_.back()->Attach(network.Make(addresses.back(), workers_.back().get()));
      if (rank == 0) {
        coordinator_ = std::make_unique<ElasticBspCoordinator>(options, rules, errors);
        coordinator_->Attach(network.Make("coordinator", coordinator_.get()));
      }
    }
    for (auto& worker : workers_) {
      EXPECT_TRUE(worker->Connect({"coordinator"}, {0}).ok());
    }
    EXPECT_TRUE(coordinator_->Connect(addresses, {0}).ok());
    for (uint32_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(Fetch(rank).value, 0.0f);
    }
  }

  ~Job() {
    for (auto& worker : workers_) {
      worker->Cancel(CancelledError("the test is over"));
      worker->Shutdown();  // not in its own thread, which may hold it for a moment longer
    }
    coordinator_.reset();
    workers_.clear();
  }

  std::future<Outcome> Step(uint32_t rank, float value, bool finite = true) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    workers_[rank]->Step(Pack(value), 1, finite, Keep(promise));
    return promise->get_future();
  }

  Outcome Fetch(uint32_t rank) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    workers_[rank]->Fetch(Keep(promise));
    return promise->get_future().get();
  }

  std::future<Status> Drain(uint32_t rank, float value) {
    auto promise = std::make_shared<std::promise<Status>>();
    workers_[rank]->Drain(Pack(value),
                          [promise](const Status& status) { promise->set_value(status); });
    return promise->get_future();
  }

  ElasticBspWorker& worker(uint32_t rank) { return *workers_[rank]; }
  HeldParameters& seen_by(uint32_t rank) { return *seen_[rank]; }
  const ElasticBspCoordinator& coordinator() const { return *coordinator_; }
  uint32_t size() const { return size_; }

  FakeNetwork network;  // outlives the ranks

 private:
  static Payload Pack(float value) { return Payload::Copy(&value, sizeof(value)); }

  static ElasticBspWorker::ValuesCallback Keep(std::shared_ptr<std::promise<Outcome>> promise) {
    return [promise](const Status& status, const Payload& values) {
      Outcome outcome{status, 0};
      if (status.ok()) {
        std::memcpy(&outcome.value, values.data(), sizeof(outcome.value));
      }
      promise->set_value(outcome);
    };
  }

  const uint32_t size_;
  const std::shared_ptr<SharedParameters> parameters_ = std::make_shared<SharedParameters>(size_);
  std::vector<std::shared_ptr<HeldParameters>> seen_;
  std::vector<std::shared_ptr<ElasticBspWorker>> workers_;
  std::unique_ptr<ElasticBspCoordinator> coordinator_;
};

template <typename T>
bool IsReady(const std::future<T>& future, std::chrono::milliseconds patience = kJobDeadline) {
  return future.wait_for(patience) == std::future_status::ready;
}

inline ElasticBspScheduler::Rules RulesOf(ElasticBspScheduler::Model model,
                                          uint32_t lookahead = 15) {
  ElasticBspScheduler::Rules rules;
  rules.model = model;
  rules.lookahead = lookahead;
  rules.staleness = 1;
  return rules;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_FAKE_JOB_H_
