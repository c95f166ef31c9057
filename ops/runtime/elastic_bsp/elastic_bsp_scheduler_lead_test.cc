#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"

namespace trepak {
namespace {

using Orders = ElasticBspScheduler::Orders;

// Workers as real ones are: who is granted steps takes them, whatever happens. Some are up to 30
// times as slow as others, each step takes another time, they stall, and pause one after the other
// now and then. Whoever takes part is never more than the lookahead ahead of another in a
// superstep; and nobody waits for ever.
class Workers {
 public:
  explicit Workers(uint32_t seed) : random_(seed), taken_(6) {
    rules_.workers = 1 + seed % 6;
    rules_.lookahead = 1 + seed % 20;
    rules_.prediction = static_cast<Expectation::Kind>(seed % 3);
    rules_.patience_seconds = 8;
    rules_.patience_factor = 3;
    stalls_ = seed % 2 == 0;
    scheduler_ = std::make_unique<ElasticBspScheduler>(rules_);
    first_ = granted_ = taken_;
    ends_.assign(6, kNever);
    for (int worker = 0; worker < 6; ++worker) {
      slowness_.push_back(std::exp(3.4 * static_cast<double>(random_() % 1000) / 1000));
    }
  }

  void Epoch(int steps) {
    active_.assign(6, true);
    Carry(scheduler_->Begin(now_), true);
    ASSERT_NO_FATAL_FAILURE(GoOnFor(steps));
    for (uint32_t worker = 0; worker < rules_.workers; ++worker) {
      active_[worker] = false;
      ends_[worker] = kNever;  // it ends its step, and nobody is told
      Carry(scheduler_->Pause(worker, now_), false);
      if (worker + 1 < rules_.workers) {
        ASSERT_NO_FATAL_FAILURE(GoOnFor(static_cast<int>(random_() % 10)));
      }
    }
  }

  const ElasticBspScheduler::Counters& counters() const { return scheduler_->counters(); }
  const ElasticBspScheduler::Rules& rules() const { return rules_; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void GoOnFor(int steps) {
    for (int i = 0; i < steps; ++i) {
      while (*std::min_element(ends_.begin(), ends_.end()) > now_ + 1) {
        now_ += 1;
        ASSERT_LT(now_, latest_ + 3000) << "nobody goes on";
        Carry(scheduler_->Tick(now_), false);
      }
      TakeStep();
    }
  }

  void TakeStep() {
    const auto next = std::min_element(ends_.begin(), ends_.end());
    const auto worker = static_cast<uint32_t>(next - ends_.begin());
    now_ = latest_ = std::max(*next, now_);
    *next = kNever;
    ++taken_[worker];
    const Orders orders = scheduler_->End(worker, now_, 0);
    if (taken_[worker] < granted_[worker]) {
      GoOn(worker);
    }
    CheckLead();
    Carry(orders, false);
    for (uint32_t other = 0; other < rules_.workers; ++other) {
      ASSERT_EQ(IsAtStep(other), scheduler_->is_at_step(other));
    }
  }

  void CheckLead() const {
    uint64_t least = ElasticBspScheduler::kForever;
    uint64_t most = 0;
    for (uint32_t other = 0; other < rules_.workers; ++other) {
      if (active_[other] && !scheduler_->is_out(other)) {
        least = std::min(least, taken_[other] - first_[other]);
        most = std::max(most, taken_[other] - first_[other]);
      }
    }
    ASSERT_LE(most, least + rules_.lookahead);
  }

  void Carry(const Orders& orders, bool begins) {
    for (const ElasticBspScheduler::Grant& grant : orders.grants) {
      ASSERT_FALSE(IsAtStep(grant.worker)) << "at a barrier all wait";
      granted_[grant.worker] = grant.steps;
      first_[grant.worker] = taken_[grant.worker];
      ASSERT_GT(grant.steps, taken_[grant.worker]);
      ASSERT_LE(grant.steps, taken_[grant.worker] + rules_.lookahead);
      ASSERT_EQ(orders.barrier, !begins);
      GoOn(grant.worker);
    }
  }

  void GoOn(uint32_t worker) {
    const bool stalls = stalls_ && random_() % 50 == 0;
    const double seconds = 0.1 + static_cast<double>(random_() % 1000) / 300;
    ends_[worker] = now_ + slowness_[worker] * (seconds + (stalls ? 60 : 0));
  }

  bool IsAtStep(uint32_t worker) const { return ends_[worker] < kNever; }

  std::mt19937 random_;
  ElasticBspScheduler::Rules rules_;
  bool stalls_ = false;
  std::unique_ptr<ElasticBspScheduler> scheduler_;
  std::vector<uint64_t> taken_, first_, granted_;
  std::vector<bool> active_;
  std::vector<double> slowness_;
  std::vector<double> ends_;  // of the step that each is at
  double now_ = 0;
  double latest_ = 0;
};

TEST(ElasticBspSchedulerTest, TheLeadInASuperstepIsWithinTheLookahead) {
  uint64_t taken_out = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Workers workers(seed);
    for (int epoch = 0; epoch < 3; ++epoch) {
      ASSERT_NO_FATAL_FAILURE(workers.Epoch(200)) << "seed " << seed;
    }
    const ElasticBspScheduler::Rules& rules = workers.rules();
    EXPECT_GT(workers.counters().barriers, 600u / rules.workers / (rules.lookahead + 1) / 2);
    taken_out += workers.counters().taken_out;
  }
  EXPECT_GT(taken_out, 100u);
}

}  // namespace
}  // namespace trepak
