// All ranks of an RNA job in one process, for tests.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_FAKE_JOB_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_FAKE_JOB_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/net/fake_network.h"
#include "ops/runtime/net/job_endpoints.h"
#include "ops/runtime/parameters/fake_parameters.h"
#include "ops/runtime/parameters/summation.h"
#include "ops/runtime/rna/rna_coordinator.h"
#include "ops/runtime/rna/rna_worker.h"

namespace trepak {

constexpr std::chrono::milliseconds kDeadline{20'000};

// What Horovod does in a real job: a round's sum is there when all ranks have brought their part.
class Allreduce {
 public:
  // A rank's, which a shared_ptr owns.
  class Rank : public CollectiveCalls, public std::enable_shared_from_this<Rank> {
   public:
    explicit Rank(Allreduce* allreduce) : allreduce_(allreduce) {}

    Status StartSum(Sum sum) override {
      sum.done = [self = shared_from_this(), done = std::move(sum.done)](const Status& status) {
        self->Hear([done, status] { done(status); });
      };
      allreduce_->Add(std::move(sum));
      return OkStatus();
    }

    // While the rank is held, it does not hear that a round has ended.
    void Hold(bool held) {
      std::function<void()> missed;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        held_ = held;
        missed = std::exchange(missed_, nullptr);
      }
      if (missed != nullptr) {
        Hear(missed);
      }
    }

   private:
    void Hear(const std::function<void()>& done) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (held_) {
          missed_ = done;
          return;
        }
      }
      done();
    }

    Allreduce* const allreduce_;
    std::mutex mutex_;
    bool held_ = false;             // Guarded by mutex_.
    std::function<void()> missed_;  // Guarded by mutex_; at most one, as rounds follow each other.
  };

  explicit Allreduce(uint32_t size) : size_(size) {}

 private:
  void Add(CollectiveCalls::Sum sum) {
    std::vector<CollectiveCalls::Sum> sums;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      sums_.push_back(std::move(sum));
      if (sums_.size() < size_) {
        return;
      }
      sums.swap(sums_);
    }
    const size_t bytes = sums[0].output.size();
    for (size_t i = 1; i < sums.size(); ++i) {
      Accumulate(sums[i].type, bytes, 1.0, sums[i].input.data(), sums[0].output.mutable_data());
    }
    for (size_t i = 1; i < sums.size(); ++i) {
      std::memcpy(sums[i].output.mutable_data(), sums[0].output.data(), bytes);
    }
    for (const CollectiveCalls::Sum& each : sums) {
      each.done(OkStatus());
    }
  }

  const size_t size_;
  std::mutex mutex_;
  std::vector<CollectiveCalls::Sum> sums_;  // Guarded by mutex_; of the next round.
};

inline Gradient GradientOf(float value, uint64_t samples = 1, double rate = 0.1) {
  return {Payload::Copy(&value, sizeof(value)), 0, samples, rate};
}

inline float ValueOf(const RnaWorker::Round& round) {
  return *static_cast<const float*>(round.sum.data());
}

// Waits until a worker has rounds to read, and reads one.
inline RnaWorker::Round ReadFrom(RnaWorker* worker) {
  RnaWorker::Round round;
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (worker->finished() == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Status status = worker->Read(&round);
  EXPECT_TRUE(status.ok()) << status;
  return round;
}

using Groups = std::vector<std::vector<uint32_t>>;

// All ranks of a job in one process. Gradients are one number, unless there are more elements.
class Job {
 public:
  explicit Job(uint32_t size, RnaCoordinator::Rules rules = {}, uint64_t staleness = 100,
               std::chrono::milliseconds deadline = kDeadline, Groups groups = {},
               uint64_t period = 0, size_t elements = 1)
      : Job(size, std::move(rules), WorkerRules(staleness, period, elements), deadline,
            std::move(groups)) {}

  Job(uint32_t size, RnaCoordinator::Rules rules, const RnaWorker::Rules& worker_rules,
      std::chrono::milliseconds deadline = kDeadline, Groups groups = {})
      : size_(size),
        deadline_(deadline),
        worker_rules_(worker_rules),
        calls_(size),
        workers_(size) {
    worker_rules_.elements = std::max<size_t>(1, worker_rules_.elements);
    if (groups.empty()) {
      groups.emplace_back();
      for (uint32_t rank = 0; rank < size; ++rank) {
        groups[0].push_back(rank);
      }
    }
    for (const std::vector<uint32_t>& members : groups) {
      rules.members = members;
      StartGroup(rules);
    }
  }

  ~Job() {
    for (auto& worker : workers_) {
      worker->Cancel(CancelledError("the test is over"));
      worker->Shutdown();  // not in its own thread, which may hold it for a moment longer
    }
    coordinators_.clear();
    workers_.clear();
  }

  Status Write(uint32_t rank, float value, uint64_t samples = 1, double rate = 0.1) {
    return workers_[rank]->Write(GradientOf(value, samples, rate));
  }

  RnaWorker::Round Read(uint32_t rank) { return ReadFrom(workers_[rank].get()); }

  std::future<Status> Drain(uint32_t rank) {
    auto promise = std::make_shared<std::promise<Status>>();
    workers_[rank]->Drain([promise](const Status& status) { promise->set_value(status); });
    return promise->get_future();
  }

  std::future<Status> Await(uint32_t rank) {
    auto promise = std::make_shared<std::promise<Status>>();
    workers_[rank]->Await([promise](const Status& status) { promise->set_value(status); });
    return promise->get_future();
  }

  // Keeps a rank from hearing that rounds have ended.
  void Hold(uint32_t rank, bool held) { calls_[rank]->Hold(held); }

  // Ends a rank that leads a group, as if its training were over.
  void Leave(size_t group, uint32_t leader) {
    LeaveTogether({workers_[leader].get(), coordinators_[group].get()},
                  std::chrono::milliseconds(0));
  }

  RnaWorker& worker(uint32_t rank) { return *workers_[rank]; }
  uint32_t size() const { return size_; }

 public:
  FakeNetwork network;  // outlives the ranks

 private:
  static RnaWorker::Rules WorkerRules(uint64_t staleness, uint64_t period, size_t elements) {
    RnaWorker::Rules rules;
    rules.staleness = staleness;
    rules.exchange.period = period;
    rules.elements = elements;
    return rules;
  }

  void StartGroup(const RnaCoordinator::Rules& rules) {
    const std::vector<uint32_t>& members = rules.members;
    const uint32_t leader = members.front();
    const std::string coordinator = "coordinator " + std::to_string(leader);
    allreduces_.push_back(std::make_unique<Allreduce>(static_cast<uint32_t>(members.size())));
    std::vector<std::string> addresses(size_);
    std::shared_ptr<ErrorLatch> leaders_errors;
    worker_rules_.exchange.ranks = static_cast<uint32_t>(members.size());
    for (const uint32_t rank : members) {
      auto errors = std::make_shared<ErrorLatch>();
      worker_rules_.leads = rank == leader;
      leaders_errors = rank == leader ? errors : leaders_errors;
      addresses[rank] = "worker " + std::to_string(rank);
      calls_[rank] = std::make_shared<Allreduce::Rank>(allreduces_.back().get());
      workers_[rank] =
          std::make_shared<RnaWorker>(Endpoint::Options{rank, size_, deadline_}, worker_rules_,
                                      leader, calls_[rank], parameters_, errors);
      workers_[rank]->Attach(network.Make(addresses[rank], workers_[rank].get()));
    }
    coordinators_.push_back(std::make_unique<RnaCoordinator>(
        Endpoint::Options{leader, size_, deadline_}, rules, leaders_errors));
    coordinators_.back()->Attach(network.Make(coordinator, coordinators_.back().get()));
    std::vector<std::string> to(leader + 1);
    to.back() = coordinator;
    for (const uint32_t rank : members) {
      EXPECT_TRUE(workers_[rank]->Connect(to, {0}).ok());
    }
    EXPECT_TRUE(coordinators_.back()->Connect(addresses, {0}).ok());
  }

  const uint32_t size_;
  const std::chrono::milliseconds deadline_;
  RnaWorker::Rules worker_rules_;
  const std::shared_ptr<SharedParameters> parameters_ = std::make_shared<SharedParameters>(size_);
  std::vector<std::unique_ptr<Allreduce>> allreduces_;
  std::vector<std::shared_ptr<Allreduce::Rank>> calls_;  // by rank
  std::vector<std::shared_ptr<RnaWorker>> workers_;
  std::vector<std::unique_ptr<RnaCoordinator>> coordinators_;
};

inline RnaCoordinator::Rules Rules(uint32_t choices, uint32_t quorum = 1, uint64_t seed = 0) {
  RnaCoordinator::Rules rules;
  rules.choices = choices;
  rules.quorum = quorum;
  rules.seed = seed;
  return rules;
}

inline bool IsReady(const std::future<Status>& future,
                    std::chrono::milliseconds patience = kDeadline) {
  return future.wait_for(patience) == std::future_status::ready;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_FAKE_JOB_H_
