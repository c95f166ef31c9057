// Who is given which token, against the policies written down plainly: what the scheduler keeps in
// order, this looks for among all workers and tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/runtime/fela/fela_scheduler.h"

namespace trepak {
namespace {

using Given = std::vector<std::pair<uint32_t, uint32_t>>;  // worker, token

class Plainly {
 public:
  explicit Plainly(const FelaRules& rules)
      : plan_(rules),
        generator_(plan_),
        info_(plan_.numbers(), plan_.workers()),
        places_(plan_.workers()),
        helps_(plan_.workers(), kNoWorker) {}

  Given Begin(uint32_t worker, uint32_t samples) {
    Add(generator_.Begin(worker, samples), worker);
    return ServeWaiting();
  }

  Given Request(uint32_t worker) { return ServeOrWait(worker); }

  Given Report(uint32_t worker, uint32_t token) {
    info_.Complete(worker, token);
    Add(generator_.Complete(token), worker);
    Given given = ServeOrWait(worker);
    const Given others = ServeWaiting();
    given.insert(given.end(), others.begin(), others.end());
    return given;
  }

  bool is_over() const { return generator_.is_over(); }

 private:
  void Add(const std::vector<uint32_t>& made, uint32_t reporter) {
    for (const uint32_t token : made) {
      places_[PlaceOf(generator_.token(token), reporter)].insert(token);
    }
  }

  uint32_t PlaceOf(const FelaToken& token, uint32_t reporter) const {
    if (!plan_.rules().hierarchical) {
      return 0;
    }
    uint32_t place = reporter;
    if (plan_.IsBackward(token.stage)) {
      place = info_.holder(token.needs.front());
    } else if (!token.needs.empty()) {
      const uint32_t most = info_.HolderOfMost(token);
      place = info_.Held(reporter, token) == info_.Held(most, token) ? reporter : most;
    }
    const uint32_t submodel = plan_.SubmodelOf(token.stage);
    if (plan_.MayTrain(place, submodel)) {
      return place;
    }
    const std::vector<uint32_t>& subset = plan_.Subset(submodel);
    return *std::min_element(subset.begin(), subset.end(), [this](uint32_t one, uint32_t other) {
      return places_[one].size() < places_[other].size();
    });
  }

  Given ServeOrWait(uint32_t worker) {
    Given given = Serve(worker);
    if (given.empty()) {
      waiting_.push_back(worker);
    }
    return given;
  }

  Given ServeWaiting() {
    Given all;
    for (size_t left = waiting_.size(); left > 0; --left) {
      const uint32_t worker = waiting_.front();
      waiting_.pop_front();
      const Given given = ServeOrWait(worker);
      all.insert(all.end(), given.begin(), given.end());
    }
    return all;
  }

  Given Serve(uint32_t worker) {
    helps_[worker] = kNoWorker;
    const uint32_t own = plan_.rules().hierarchical ? worker : 0;
    std::vector<std::tuple<bool, ptrdiff_t, uint32_t, uint32_t>> order;  // own, helpers, progress
    for (uint32_t place = 0; place < places_.size(); ++place) {
      const ptrdiff_t helpers = std::count(helps_.begin(), helps_.end(), place);
      order.emplace_back(place != own, helpers, info_.completed(place), place);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [is_help, helpers, progress, place] : order) {
      const std::optional<uint32_t> token = Best(place, worker);
      if (token) {
        helps_[worker] = is_help ? place : kNoWorker;
        places_[place].erase(*token);
        return {{worker, *token}};
      }
    }
    return {};
  }

  // CTD, then ADS, then the numbers.
  std::optional<uint32_t> Best(uint32_t place, uint32_t worker) const {
    using Rank = std::tuple<bool, int64_t, double, uint32_t>;
    std::optional<Rank> best;
    for (const uint32_t id : places_[place]) {
      const FelaToken& token = generator_.token(id);
      if (!MayTake(worker, token)) {
        continue;
      }
      const bool conditional = plan_.IsConditional(plan_.SubmodelOf(token.stage));
      const bool depth_first = plan_.rules().depth_first;
      const double score = token.needs.empty() || !depth_first
                               ? 0
                               : static_cast<double>(info_.Held(worker, token)) /
                                     static_cast<double>(token.needs.size());
      const int64_t level = depth_first || conditional ? -static_cast<int64_t>(token.stage) : 0;
      const Rank rank{!conditional, level, -score, id};
      best = best ? std::min(*best, rank) : rank;
    }
    return best ? std::optional<uint32_t>(std::get<3>(*best)) : std::nullopt;
  }

  bool MayTake(uint32_t worker, const FelaToken& token) const {
    if (!plan_.MayTrain(worker, plan_.SubmodelOf(token.stage))) {
      return false;
    }
    if (!plan_.IsBackward(token.stage) || info_.holder(token.needs.front()) == worker) {
      return true;
    }
    return plan_.rules().recompute && WaitingFor(info_.holder(token.needs.front())) >= 2;
  }

  // Backward tokens that nobody has, whose activations a worker has.
  size_t WaitingFor(uint32_t holder) const {
    size_t count = 0;
    for (const std::set<uint32_t>& place : places_) {
      count += static_cast<size_t>(std::count_if(place.begin(), place.end(), [&](uint32_t id) {
        const FelaToken& token = generator_.token(id);
        return plan_.IsBackward(token.stage) && info_.holder(token.needs.front()) == holder;
      }));
    }
    return count;
  }

  const FelaPlan plan_;
  FelaGenerator generator_;
  FelaInfoMapping info_;
  std::vector<std::set<uint32_t>> places_;  // by worker: tokens; without HF all are in the first
  std::vector<uint32_t> helps_;             // by worker: whom
  std::deque<uint32_t> waiting_;
};

using Draw = std::mt19937;

uint32_t Below(Draw* draw, uint32_t end) { return static_cast<uint32_t>((*draw)()) % end; }

FelaRules DrawnRules(Draw* draw) {
  FelaRules rules;
  const uint32_t workers = 1 + Below(draw, 9);
  for (uint32_t worker = 0; worker < workers; ++worker) {
    rules.batches.push_back(Below(draw, 12));
  }
  rules.batches[0] += 1;
  rules.threshold = 1 + Below(draw, 4);
  rules.weights = {1};
  for (uint32_t more = Below(draw, 4); more > 0; --more) {
    rules.weights.push_back(rules.weights.back() * (1 + Below(draw, 3)));
  }
  for (size_t i = 0; i < rules.weights.size(); ++i) {
    std::vector<uint32_t> subset;
    for (uint32_t worker = 0; worker < workers && Below(draw, 2) == 0; ++worker) {
      subset.push_back(worker);
    }
    rules.subsets.push_back(subset);
  }
  rules.depth_first = Below(draw, 4) != 0;
  rules.hierarchical = Below(draw, 4) != 0;
  rules.recompute = Below(draw, 4) != 0;
  return rules;
}

TEST(FelaOrderTest, TokensGoToWhomThePoliciesSay) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Draw draw(seed);
    const FelaRules rules = DrawnRules(&draw);
    FelaScheduler scheduler(rules);
    Plainly plainly(rules);
    std::vector<uint32_t> to_begin;
    std::vector<uint32_t> to_request;
    std::map<uint32_t, uint32_t> in_hand;  // by worker
    for (uint32_t worker = 0; worker < rules.batches.size(); ++worker) {
      to_begin.push_back(worker);
    }
    while (!plainly.is_over()) {
      FelaScheduler::Orders orders;
      Given expected;
      Status status;
      const uint32_t what = Below(&draw, 3);
      if (what == 0 && !to_begin.empty()) {
        const uint32_t worker = to_begin.back();
        to_begin.pop_back();
        to_request.push_back(worker);
        status = scheduler.Begin(worker, 0, rules.batches[worker], &orders);
        expected = plainly.Begin(worker, rules.batches[worker]);
      } else if (what == 1 && !to_request.empty()) {
        const uint32_t i = Below(&draw, static_cast<uint32_t>(to_request.size()));
        const uint32_t worker = to_request[i];
        to_request.erase(to_request.begin() + i);
        status = scheduler.Request(worker, 0, &orders);
        expected = plainly.Request(worker);
      } else if (what == 2 && !in_hand.empty()) {
        auto one = in_hand.begin();
        std::advance(one, Below(&draw, static_cast<uint32_t>(in_hand.size())));
        const auto [worker, token] = *one;
        in_hand.erase(one);
        status = scheduler.Report(worker, 0, token, &orders);
        expected = plainly.Report(worker, token);
      }
      ASSERT_TRUE(status.ok()) << status.message();
      Given given;
      for (const FelaScheduler::Assignment& order : orders.assignments) {
        given.emplace_back(order.worker, order.token);
        in_hand[order.worker] = order.token;
      }
      ASSERT_EQ(given, expected);
      ASSERT_EQ(orders.over(), plainly.is_over());
    }
  }
}

}  // namespace
}  // namespace trepak
