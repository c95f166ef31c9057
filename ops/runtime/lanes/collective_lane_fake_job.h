// The collectives of a job's ranks in one process, and the lanes over them, for tests.

#ifndef TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_LANE_FAKE_JOB_H_
#define TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_LANE_FAKE_JOB_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/lanes/collective_lane.h"

namespace trepak {

constexpr size_t kPiece = 16;   // bytes: four floats
constexpr size_t kWindow = 40;  // three pieces

// The collectives of all ranks of a job in one process: one runs when Run is called, and all ranks
// have started it.
class FakeCollectives {
 public:
  class Rank : public CollectiveCalls {
   public:
    Rank(FakeCollectives* job, uint32_t rank) : job_(job), rank_(rank) {}

    Status StartSum(Sum sum) override { return job_->Start(rank_, std::move(sum)); }

   private:
    FakeCollectives* const job_;
    const uint32_t rank_;
  };

  explicit FakeCollectives(uint32_t ranks) : ranks_(ranks) {}

  // Runs one that is ready; false if none is.
  bool Run(std::mt19937* random) {
    Calls calls;
    std::string name;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::vector<std::string> ready;
      for (const auto& [each, started] : started_) {
        if (started.size() == ranks_ - joined_) {
          ready.push_back(each);
        }
      }
      if (ready.empty()) {
        return false;
      }
      name = ready[(*random)() % ready.size()];
      calls = std::move(started_[name]);
      started_.erase(name);
      if (IsPiece(name)) {
        order_.push_back(name);
      }
    }
    Status outcome = failure_;
    if (outcome.ok()) {
      Reduce(&calls);
    }
    for (auto& [rank, call] : calls) {
      call.done(outcome);
    }
    return true;
  }

  // Sums that have run, in their order.
  std::vector<std::string> order() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return order_;
  }

  // Bytes of sums that a rank has started and that have not run.
  size_t under_way(uint32_t rank) const {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t bytes = 0;
    for (const auto& [name, started] : started_) {
      const auto found = started.find(rank);
      if (found != started.end() && IsPiece(name)) {
        bytes += found->second.input.size();
      }
    }
    return bytes;
  }

  size_t started() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return started_.size();
  }

  // A rank starts no more sums: it adds zeros to the others'.
  void Join() { ++joined_; }

  void Break(const Status& status) { failure_ = status; }

 private:
  using Calls = std::map<uint32_t, CollectiveCalls::Sum>;  // by rank

  static bool IsPiece(const std::string& name) { return name.find('.') != std::string::npos; }

  Status Start(uint32_t rank, CollectiveCalls::Sum sum) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string name = sum.name;
    EXPECT_TRUE(started_[name].emplace(rank, std::move(sum)).second) << name << " twice at once";
    return OkStatus();
  }

  void Reduce(Calls* calls) const {
    for (size_t i = 0; i < calls->begin()->second.input.size() / sizeof(float); ++i) {
      float total = 0;
      for (auto& [rank, call] : *calls) {
        total += static_cast<const float*>(call.input.data())[i];
      }
      for (auto& [rank, call] : *calls) {
        const auto mean = call.average ? total / static_cast<float>(ranks_) : total;
        static_cast<float*>(call.output.mutable_data())[i] = mean * static_cast<float>(call.factor);
      }
    }
  }

  const uint32_t ranks_;
  uint32_t joined_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, Calls> started_;
  std::vector<std::string> order_;
  Status failure_;
};

inline Payload Floats(size_t count, float value) {
  Payload payload = Payload::Allocate(count * sizeof(float));
  std::fill_n(static_cast<float*>(payload.mutable_data()), count, value);
  return payload;
}

struct Outcome {
  Status status;
  std::vector<float> values;
};

class Job {
 public:
  // `urgent`: bytes of the first gradients that wait for no window.
  Job(uint32_t ranks, const std::vector<size_t>& elements, size_t urgent = 0)
      : elements_(elements), collectives(ranks) {
    std::vector<Variable> variables;
    for (size_t place = 0; place < elements.size(); ++place) {
      variables.push_back({Key(place), "variable " + std::to_string(place), ElementType::kFloat32,
                           elements[place]});
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const PieceSchedule::Rules rules{kPiece, kWindow, urgent};
      const CollectiveLane::Options options{"lane", "rank " + std::to_string(rank), rules};
      lanes.push_back(std::make_shared<CollectiveLane>(
          options, variables, std::make_shared<FakeCollectives::Rank>(&collectives, rank)));
    }
  }

  static uint32_t Key(size_t place) { return 100 + static_cast<uint32_t>(place); }

  Status Push(uint32_t rank, size_t place, float value, double factor = 1.0, bool average = false) {
    return lanes[rank]->PushGradient(Key(place), 0, Floats(elements_[place], value), factor,
                                     average, true);
  }

  std::future<Outcome> Deliver(uint32_t rank, size_t place) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    lanes[rank]->Deliver(Key(place), [promise](const Status& status, Payload result) {
      const auto* begin = static_cast<const float*>(result.data());
      promise->set_value({status, {begin, begin + result.size() / sizeof(float)}});
    });
    return promise->get_future();
  }

  void RunAll() {
    while (collectives.Run(&random)) {
    }
  }

  const std::vector<size_t> elements_;
  FakeCollectives collectives;
  std::vector<std::shared_ptr<CollectiveLane>> lanes;
  std::mt19937 random{7};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_LANE_FAKE_JOB_H_
