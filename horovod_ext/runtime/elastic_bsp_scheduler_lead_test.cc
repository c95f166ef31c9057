#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "horovod_ext/runtime/elastic_bsp_scheduler.h"

namespace trepak {
namespace {

using Orders = ElasticBspScheduler::Orders;

// Workers as real ones are: who is granted steps takes them, whatever happens. They are of random,
// changing speed, stall, and pause together now and then. Whoever takes part is never more than the
// lookahead ahead of another in a superstep; and nobody waits for ever.
class Workers {
 public:
  explicit Workers(uint32_t seed) : random_(seed), taken_(6) {
    rules_.workers = 1 + seed % 6;
    rules_.lookahead = 1 + seed % 20;
    rules_.patience_seconds = 8;
    rules_.patience_factor = 3;
    stalls_ = seed % 2 == 0;
    scheduler_ = std::make_unique<ElasticBspScheduler>(rules_);
    first_ = granted_ = taken_;
    at_step_.assign(6, false);
  }

  void Epoch(int steps) {
    Carry(scheduler_->Begin(now_), true);
    for (int i = 0; i < steps; ++i) {
      while (events_.empty() || events_.top().first > now_ + 1) {
        now_ += 1;
        ASSERT_LT(now_, latest_ + 1000) << "nobody goes on";
        Carry(scheduler_->Tick(now_), false);
      }
      TakeStep();
    }
    for (uint32_t worker = 0; worker < rules_.workers; ++worker) {  // they end the step they are at
      Carry(scheduler_->Pause(worker, now_), false);
    }
    events_ = {};
    at_step_.assign(6, false);
  }

  const ElasticBspScheduler::Counters& counters() const { return scheduler_->counters(); }
  const ElasticBspScheduler::Rules& rules() const { return rules_; }

 private:
  using Event = std::pair<double, uint32_t>;

  void TakeStep() {
    const auto [now, worker] = events_.top();
    events_.pop();
    now_ = latest_ = std::max(now, now_);
    ++taken_[worker];
    at_step_[worker] = false;
    const Orders orders = scheduler_->End(worker, now_, 0);
    if (taken_[worker] < granted_[worker]) {
      GoOn(worker);
    }
    CheckLead();
    Carry(orders, false);
    for (uint32_t other = 0; other < rules_.workers; ++other) {
      ASSERT_EQ(at_step_[other], scheduler_->is_at_step(other));
    }
  }

  void CheckLead() const {
    uint64_t least = ElasticBspScheduler::kForever;
    uint64_t most = 0;
    for (uint32_t other = 0; other < rules_.workers; ++other) {
      if (!scheduler_->is_out(other)) {
        least = std::min(least, taken_[other] - first_[other]);
        most = std::max(most, taken_[other] - first_[other]);
      }
    }
    ASSERT_LE(most, least + rules_.lookahead);
  }

  void Carry(const Orders& orders, bool begins) {
    for (const ElasticBspScheduler::Grant& grant : orders.grants) {
      ASSERT_FALSE(at_step_[grant.worker]) << "at a barrier all wait";
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
    const double seconds = 0.1 + static_cast<double>(random_() % 1000) / 300 + (stalls ? 60 : 0);
    events_.emplace(now_ + seconds, worker);
    at_step_[worker] = true;
  }

  std::mt19937 random_;
  ElasticBspScheduler::Rules rules_;
  bool stalls_ = false;
  std::unique_ptr<ElasticBspScheduler> scheduler_;
  std::vector<uint64_t> taken_, first_, granted_;
  std::vector<bool> at_step_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
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
