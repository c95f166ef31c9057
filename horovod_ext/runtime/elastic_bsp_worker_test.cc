#include "horovod_ext/runtime/elastic_bsp_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "horovod_ext/runtime/elastic_bsp_controller.h"
#include "horovod_ext/runtime/fake_network.h"
#include "horovod_ext/runtime/fake_parameters.h"

namespace trepak {
namespace {

using Model = ElasticBspScheduler::Model;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kDeadline{20'000};

struct Outcome {
  Status status;
  float value = 0;
};

// What one rank sees of the job's parameters: it may wait long for them.
class HeldParameters : public GlobalParameters {
 public:
  explicit HeldParameters(std::shared_ptr<GlobalParameters> all) : all_(std::move(all)) {}

  void Hold() { held_ = true; }
  void Release() {
    held_ = false;
    std::vector<Callback> callbacks;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      callbacks.swap(callbacks_);
    }
    for (Callback& callback : callbacks) {
      all_->Fetch(std::move(callback));
    }
  }

  void Assign(Payload values, Callback callback) override {
    all_->Assign(std::move(values), std::move(callback));
  }
  void Change(Payload change, uint64_t samples, Callback callback) override {
    all_->Change(std::move(change), samples, std::move(callback));
  }
  void Fetch(Callback callback) override {
    if (!held_) {
      all_->Fetch(std::move(callback));
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    callbacks_.push_back(std::move(callback));
  }

 private:
  const std::shared_ptr<GlobalParameters> all_;
  std::atomic<bool> held_{false};
  std::mutex mutex_;
  std::vector<Callback> callbacks_;  // Guarded by mutex_.
};

// All ranks of a job in one process; parameters are one number.
class Job {
 public:
  Job(uint32_t size, ElasticBspScheduler::Rules rules, milliseconds deadline = kDeadline)
      : size_(size) {
    rules.workers = size;
    ElasticBspWorker::Rules worker_rules;
    worker_rules.elements = 1;
    worker_rules.share = 1.0 / size;
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
        controller_ = std::make_unique<ElasticBspController>(options, rules, errors);
        controller_->Attach(network.Make("controller", controller_.get()));
      }
    }
    for (auto& worker : workers_) {
      EXPECT_TRUE(worker->Connect({"controller"}, {0}).ok());
    }
    EXPECT_TRUE(controller_->Connect(addresses, {0}).ok());
    for (uint32_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(Fetch(rank).value, 0.0f);
    }
  }

  ~Job() {
    for (auto& worker : workers_) {
      worker->Cancel(CancelledError("the test is over"));
    }
    controller_.reset();
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
  const ElasticBspController& controller() const { return *controller_; }
  uint32_t size() const { return size_; }

  FakeNetwork network;  // outlives the ranks

 private:
  static Payload Pack(float value) {
    Payload values = Payload::Allocate(sizeof(value));
    std::memcpy(values.mutable_data(), &value, sizeof(value));
    return values;
  }

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
  const std::shared_ptr<SharedParameters> parameters_ = std::make_shared<SharedParameters>();
  std::vector<std::shared_ptr<HeldParameters>> seen_;
  std::vector<std::shared_ptr<ElasticBspWorker>> workers_;
  std::unique_ptr<ElasticBspController> controller_;
};

template <typename T>
bool IsReady(const std::future<T>& future, milliseconds patience = kDeadline) {
  return future.wait_for(patience) == std::future_status::ready;
}

ElasticBspScheduler::Rules RulesOf(Model model, uint32_t lookahead = 15) {
  ElasticBspScheduler::Rules rules;
  rules.model = model;
  rules.lookahead = lookahead;
  rules.staleness = 1;
  return rules;
}

TEST(ElasticBspWorkerTest, AtABarrierAllGetTheSumOfWhatAllHaveChanged) {
  Job job(2, RulesOf(Model::kElasticBsp, 1));
  float value = 0;
  for (int step = 0; step < 5; ++step) {
    std::future<Outcome> first = job.Step(0, value + 2);
    EXPECT_FALSE(IsReady(first, milliseconds(20)));
    std::future<Outcome> second = job.Step(1, value + 4);
    ASSERT_TRUE(IsReady(first) && IsReady(second));
    value += 3;  // each counts a half
    EXPECT_EQ(first.get().value, value);
    EXPECT_EQ(second.get().value, value);
  }
  EXPECT_EQ(job.worker(0).counters().barriers, 5u);
  EXPECT_EQ(job.worker(0).TakeSamples(), 10u);
  EXPECT_EQ(job.worker(0).TakeSamples(), 0u);
}

milliseconds Steady(uint32_t rank, uint64_t) { return milliseconds(2 + 2 * rank); }

// Every rank at a pace of its own, until it has taken so many steps; then all drain.
void Train(Job* job, uint64_t steps, const std::function<void(uint32_t, uint64_t, float)>& seen,
           const std::function<milliseconds(uint32_t, uint64_t)>& pace = Steady) {
  std::vector<float> begins;
  for (uint32_t rank = 0; rank < job->size(); ++rank) {
    begins.push_back(job->Fetch(rank).value);
  }
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < job->size(); ++rank) {
    threads.emplace_back([job, rank, steps, &begins, &seen, &pace] {
      float value = begins[rank];
      for (uint64_t step = 0; step < steps; ++step) {
        std::this_thread::sleep_for(pace(rank, step));
        std::future<Outcome> outcome = job->Step(rank, value + 1);
        ASSERT_TRUE(IsReady(outcome));
        const Outcome result = outcome.get();
        ASSERT_TRUE(result.status.ok()) << result.status;
        value = result.value;
        seen(rank, step + 1, value);
      }
      std::future<Status> drained = job->Drain(rank, value);
      ASSERT_TRUE(IsReady(drained));
      const Status status = drained.get();
      ASSERT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ElasticBspWorkerTest, NothingIsLostAndBarriersCanFollowOneAnother) {
  for (const Model model : {Model::kElasticBsp, Model::kSsp, Model::kAsp}) {
    Job job(3, RulesOf(model, 4));
    for (uint64_t epoch = 1; epoch < 4; ++epoch) {
      Train(&job, 20, [](uint32_t, uint64_t, float) {});
      for (uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_NEAR(job.Fetch(rank).value, static_cast<float>(20 * epoch), 1e-3);
        EXPECT_EQ(job.worker(rank).TakeSamples(), 60u);
      }
    }
    EXPECT_EQ(job.controller().counters().steps, 180u);
  }
}

TEST(ElasticBspWorkerTest, SspNeverLetsARankGetFurtherAhead) {
  Job job(2, RulesOf(Model::kSsp));
  std::atomic<uint64_t> taken[2] = {0, 0};
  std::atomic<uint64_t> most{0};
  Train(&job, 30, [&](uint32_t rank, uint64_t step, float) {
    // A rank may go on: it has at most taken one step more than the slowest.
    const uint64_t other = taken[1 - rank];
    taken[rank] = step;
    most = std::max<uint64_t>(most, step > other ? step - other : 0);
  });
  EXPECT_LE(most, 2u) << "one, and one that the other was just ending";
  EXPECT_GE(most, 1u);
}

TEST(ElasticBspWorkerTest, AStepThatIsNotFiniteIsLeftOut) {
  Job job(1, RulesOf(Model::kAsp));
  ASSERT_EQ(job.Step(0, 2).get().value, 2);
  const Outcome outcome = job.Step(0, std::numeric_limits<float>::quiet_NaN()).get();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.value, 2);
  EXPECT_EQ(job.Step(0, 3, false).get().value, 2) << "its gradients were not";
  EXPECT_EQ(job.worker(0).counters().not_finite, 2u);
}

TEST(ElasticBspWorkerTest, WeightsThatWereSetCountAsAChange) {
  Job job(2, RulesOf(Model::kElasticBsp));
  std::future<Status> first = job.Drain(0, 7);
  std::future<Status> second = job.Drain(1, 7);
  ASSERT_TRUE(IsReady(first) && IsReady(second));
  EXPECT_TRUE(first.get().ok() && second.get().ok());
  EXPECT_EQ(job.Fetch(0).value, 7.0f);
}

TEST(ElasticBspWorkerTest, ALostRankEndsWhatOthersWaitFor) {
  Job job(3, RulesOf(Model::kElasticBsp));
  std::future<Outcome> waiting = job.Step(0, 1);
  std::future<Status> draining = job.Drain(1, 0);
  job.network.Cut("worker 2");
  ASSERT_TRUE(IsReady(waiting) && IsReady(draining));
  EXPECT_THAT(waiting.get().status.ToString(), HasSubstr("rank 2"));
  EXPECT_THAT(draining.get().ToString(), HasSubstr("rank 2"));
}

TEST(ElasticBspWorkerTest, RanksThatOthersWaitForTooLongAreNamed) {
  for (const Model model : {Model::kElasticBsp, Model::kSsp}) {
    Job job(3, RulesOf(model), milliseconds(200));
    std::future<Outcome> waiting = job.Step(0, 1);
    std::future<Outcome> other = job.Step(2, 1);
    if (model == Model::kSsp) {  // they may take one step more than rank 1
      ASSERT_TRUE(IsReady(waiting) && IsReady(other));
      waiting = job.Step(0, 1);
      other = job.Step(2, 1);
    }
    ASSERT_TRUE(IsReady(waiting));
    EXPECT_THAT(waiting.get().status.ToString(), HasSubstr("for rank 1 to end a step"));
  }
}

TEST(ElasticBspWorkerTest, RanksThatNeverDrainAreNamed) {
  Job job(3, RulesOf(Model::kAsp), milliseconds(200));
  std::future<Status> draining = job.Drain(1, 0);
  ASSERT_TRUE(IsReady(draining));
  EXPECT_THAT(draining.get().ToString(), HasSubstr("for rank 0, rank 2 to come to"));
}

TEST(ElasticBspWorkerTest, OthersGoOnWithoutARankThatDoesNotAnswer) {
  ElasticBspScheduler::Rules rules = RulesOf(Model::kElasticBsp, 1);
  rules.patience_seconds = 0.3;
  rules.patience_factor = 1;
  Job job(2, rules);
  float value = 0;
  for (int step = 0; step < 3; ++step) {
    std::future<Outcome> first = job.Step(0, value + 1);
    std::future<Outcome> second = job.Step(1, value + 1);
    ASSERT_TRUE(IsReady(first) && IsReady(second));
    value = first.get().value;
  }
  for (int step = 0; step < 3; ++step) {
    std::future<Outcome> alone = job.Step(0, value + 1);
    ASSERT_TRUE(IsReady(alone));
    value = alone.get().value;
  }
  EXPECT_EQ(job.controller().counters().taken_out, 1u);
  std::future<Outcome> back = job.Step(1, 4);  // it went on from 3
  EXPECT_FALSE(IsReady(back, milliseconds(50)));
  std::future<Outcome> other = job.Step(0, value);
  ASSERT_TRUE(IsReady(back) && IsReady(other));
  EXPECT_EQ(back.get().value, 5.0f) << "3, 1.5 by the other alone, and its half";
  EXPECT_EQ(other.get().value, 5.0f);
}

TEST(ElasticBspWorkerTest, AtABarrierOthersGoOnWithoutWhoDoesNotFetch) {
  ElasticBspScheduler::Rules rules = RulesOf(Model::kElasticBsp, 1);
  rules.patience_seconds = 0.3;
  rules.patience_factor = 1;
  Job job(3, rules);
  float value = 0;
  const auto all_step = [&] {
    std::vector<std::future<Outcome>> outcomes;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      outcomes.push_back(job.Step(rank, value + 1));
    }
    return outcomes;
  };
  for (int step = 0; step < 3; ++step) {
    for (std::future<Outcome>& outcome : all_step()) {
      ASSERT_TRUE(IsReady(outcome));
      value = outcome.get().value;
    }
  }
  job.seen_by(2).Hold();
  std::vector<std::future<Outcome>> held = all_step();
  ASSERT_TRUE(IsReady(held[0]) && IsReady(held[1]));
  std::future<Outcome> first = job.Step(0, held[0].get().value);
  std::future<Outcome> second = job.Step(1, held[1].get().value);
  EXPECT_FALSE(IsReady(first, milliseconds(100))) << "rank 2 is to get the same parameters";
  ASSERT_TRUE(IsReady(first) && IsReady(second));
  EXPECT_TRUE(first.get().status.ok() && second.get().status.ok());
  EXPECT_EQ(job.controller().counters().taken_out, 1u);
  job.seen_by(2).Release();
  ASSERT_TRUE(IsReady(held[2]));
  EXPECT_FLOAT_EQ(held[2].get().value, 4.0f);
  std::future<Outcome> back = job.Step(2, 4.0f);  // waits for the next barrier
  EXPECT_FALSE(IsReady(back, milliseconds(20)));
  first = job.Step(0, 4.0f);
  second = job.Step(1, 4.0f);
  ASSERT_TRUE(IsReady(back) && IsReady(first) && IsReady(second));
  EXPECT_TRUE(back.get().status.ok());
}

TEST(ElasticBspWorkerTest, WhoeverStallsAllGoOnAndNothingIsLost) {
  for (const Model model : {Model::kElasticBsp, Model::kSsp}) {
    ElasticBspScheduler::Rules rules = RulesOf(model, 6);
    rules.patience_seconds = 0.03;
    rules.patience_factor = 1;
    Job job(3, rules);
    for (uint64_t epoch = 1; epoch < 4; ++epoch) {
      Train(
          &job, 60, [](uint32_t, uint64_t, float) {},
          [epoch](uint32_t rank, uint64_t step) {
            std::mt19937 random(static_cast<uint32_t>(1000 * epoch + 100 * rank + step));
            return milliseconds(1 + rank + (random() % 20 == 0 ? 60 + random() % 100 : 0));
          });
      for (uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_NEAR(job.Fetch(rank).value, static_cast<float>(60 * epoch), 1e-3);
      }
    }
    EXPECT_GT(job.controller().counters().taken_out, 3u);
    EXPECT_EQ(job.controller().counters().steps, 540u);
  }
}

}  // namespace
}  // namespace trepak
