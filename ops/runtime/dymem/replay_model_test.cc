// The times and the memory of replays of random steps are held against a naive model.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/replay.h"
#include "ops/runtime/dymem/replay_testing.h"

namespace trepak {
namespace {

constexpr double kEver = std::numeric_limits<double>::infinity();

// When everything happens if there is room for all.
class Naive {
 public:
  Naive(const RandomCase& of, SwapPolicy policy)
      : of_(of),
        graph_(of.step.graph()),
        plan_(PlanOf(of.step, policy)),
        copies_(plan_.swaps.size()) {
    double now = 0;
    for (int at = 0; at < static_cast<int>(plan_.chain.size()); ++at) {
      if (at == plan_.first_backward) {
        forward = now = std::max(now, out_);
      }
      now = RunLayer(at, now);
    }
    backward = now - forward;
  }

  double forward = 0;
  double backward = 0;

  size_t Peak() const {
    std::vector<std::pair<double, int64_t>> changes;  // what is freed comes before what is taken
    const auto live = [&](double begin, double end, size_t bytes) {
      changes.emplace_back(begin, Placed(bytes));
      changes.emplace_back(end, -static_cast<int64_t>(Placed(bytes)));
    };
    live(-1, kEver, of_.bytes.at("weights"));
    for (size_t at = 0; at < plan_.chain.size(); ++at) {
      const int node = plan_.chain[at];
      const size_t bytes = of_.bytes.at(graph_.nodes[node].name);
      if (of_.scratch > 0) {
        live(begins_[at], ends_[at], of_.scratch);
      }
      const auto swap = std::find_if(plan_.swaps.begin(), plan_.swaps.end(),
                                     [&](const Swap& one) { return one.tensor == node; });
      if (swap == plan_.swaps.end()) {
        const bool stays = !graph_.Makes(node);
        live(begins_[at], stays ? kEver : std::max(ends_[at], LastEnd(node, false, true)), bytes);
      } else {
        const Copy& copy = copies_[swap - plan_.swaps.begin()];
        live(begins_[at], std::max(copy.out, LastEnd(node, false, false)), bytes);
        live(copy.fetched, LastEnd(node, true, true), bytes);
      }
    }
    std::sort(changes.begin(), changes.end());
    int64_t now = 0;
    int64_t peak = 0;
    for (const auto& [time, bytes] : changes) {
      peak = std::max(peak, now += bytes);
    }
    return static_cast<size_t>(peak);
  }

 private:
  struct Copy {
    double out = 0;
    double fetched = 0;  // when that began
    double here = 0;
  };

  double RunLayer(int at, double now) {
    ForEach([&](const Swap& swap, Copy& copy) {
      if (swap.fetch_at == at) {
        copy.fetched = std::max(now, in_);
        in_ = copy.here = copy.fetched + SecondsOf(swap);
      }
    });
    ForEach([&](const Swap& swap, Copy& copy) {
      now = swap.needed_at == at ? std::max(now, copy.here) : now;
    });
    begins_.push_back(now);
    now += of_.seconds.at(graph_.nodes[plan_.chain[at]].name);
    ends_.push_back(now);
    now = plan_.waits_each_layer ? std::max({now, out_, in_}) : now;
    ForEach([&](const Swap& swap, Copy& copy) {
      if (at == (plan_.waits_each_layer ? swap.leaves - 1 : PositionOf(swap.tensor))) {
        out_ = copy.out = std::max(now, out_) + SecondsOf(swap);
      }
    });
    return now;
  }

  template <typename Do>
  void ForEach(const Do& act) {
    for (size_t swap = 0; swap < copies_.size(); ++swap) {
      act(plan_.swaps[swap], copies_[swap]);
    }
  }

  double SecondsOf(const Swap& swap) const {
    return static_cast<double>(of_.bytes.at(graph_.nodes[swap.tensor].name)) / of_.link;
  }
  int PositionOf(int node) const {
    return static_cast<int>(std::find(plan_.chain.begin(), plan_.chain.end(), node) -
                            plan_.chain.begin());
  }
  // Of those that read it in the passes from the one up to the other.
  double LastEnd(int tensor, bool from_backward, bool to_backward) const {
    double last = 0;
    for (const int reader : graph_.tensors[tensor].consumers) {
      const bool is_backward = graph_.nodes[reader].is_backward;
      if (is_backward >= from_backward && is_backward <= to_backward) {
        last = std::max(last, ends_[PositionOf(reader)]);
      }
    }
    return last;
  }

  const RandomCase& of_;
  const StepGraph& graph_;
  const SwapPlan plan_;
  std::vector<Copy> copies_;
  std::vector<double> begins_;  // by position
  std::vector<double> ends_;
  double out_ = 0;  // the last offload's end
  double in_ = 0;
};

TEST(ReplayModelTest, InAmplePoolsTimesAndPeaksAreTheNaiveModels) {
  ForEachCase([](const RandomCase& random, SwapPolicy policy) {
    const Naive naive(random, policy);
    for (const PoolKind kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
      const ReplayFigures figures = Replay(random.Program(policy), Ample(kind));
      EXPECT_EQ(figures.failed_block, -1);
      EXPECT_EQ(figures.waits + figures.shortages + figures.evictions, 0);
      EXPECT_NEAR(figures.forward.taken, naive.forward, kClose);
      EXPECT_NEAR(figures.backward.taken, naive.backward, kClose);
      EXPECT_EQ(figures.peak_live, naive.Peak());
      EXPECT_GE(figures.peak_occupied, figures.peak_live);
      EXPECT_GE(figures.extent, figures.peak_occupied);
      ExpectBounds(figures);
    }
  });
}

}  // namespace
}  // namespace trepak
