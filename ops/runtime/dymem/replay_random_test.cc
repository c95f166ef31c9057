// What holds of the replays of all steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/dymem/replay.h"
#include "ops/runtime/dymem/replay_testing.h"

namespace trepak {
namespace {

constexpr double kEver = std::numeric_limits<double>::infinity();

size_t PeakOf(const AllocationTrace& trace) {
  size_t live = 0;
  for (int block = 0; block < trace.before; ++block) {
    live += Placed(trace.blocks[block].bytes);
  }
  size_t peak = live;
  for (const AllocationTrace::Event& event : trace.events) {
    const size_t bytes = Placed(trace.blocks[event.block].bytes);
    live = event.is_free ? live - bytes : live + bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

size_t LeftBy(const AllocationTrace& trace) {
  std::vector<bool> lives(trace.blocks.size());
  std::fill_n(lives.begin(), trace.before, true);
  for (const AllocationTrace::Event& event : trace.events) {
    lives[event.block] = !event.is_free;
  }
  size_t left = 0;
  for (size_t block = 0; block < lives.size(); ++block) {
    left += lives[block] ? Placed(trace.blocks[block].bytes) : 0;
  }
  return left;
}

double Seconds(const ReplayFigures& figures) {
  return figures.forward.taken + figures.backward.taken;
}

TEST(ReplayRandomTest, WithoutSwapsAStepIsItsLayersAndItsTrace) {
  for (unsigned seed = 0; seed < kRandomCases; ++seed) {
    const RandomCase random(seed);
    const ReplayFigures figures = Replay(random.Program(SwapPolicy::kNone), Ample());
    const double all =
        std::accumulate(random.seconds.begin(), random.seconds.end(), 0.0,
                        [](double sum, const std::pair<const std::string, double>& one) {
                          return sum + one.second;
                        });
    EXPECT_NEAR(Seconds(figures), all, kClose);
    EXPECT_EQ(figures.peak_live, PeakOf(random.trace));
    EXPECT_EQ(figures.forward.copied + figures.backward.copied, 0);
  }
}

TEST(ReplayRandomTest, APoolOfTheExtentServesTheStepTheSameWay) {
  ForEachCase([](const RandomCase& random, SwapPolicy policy) {
    for (const PoolKind kind : {PoolKind::kFirstFit, PoolKind::kGtbm}) {
      const ReplayProgram program = random.Program(policy);
      const ReplayFigures ample = Replay(program, Ample(kind));
      ReplayOptions options = Ample(kind);
      options.limit = ample.extent;
      const ReplayFigures figures = Replay(program, options);
      EXPECT_EQ(figures.failed_block, -1);
      EXPECT_EQ(figures.waits + figures.evictions, 0);
      EXPECT_EQ(Seconds(figures), Seconds(ample));
      EXPECT_EQ(figures.extent, ample.extent);
      EXPECT_EQ(figures.peak_occupied, ample.peak_occupied);
    }
  });
}

TEST(ReplayRandomTest, WithoutOverlapTimesAddUp) {
  ForEachCase([](const RandomCase& random, SwapPolicy policy) {
    ReplayOptions options = Ample();
    options.overlaps = false;
    const ReplayFigures figures = Replay(random.Program(policy), options);
    for (const ReplayPass& pass : {figures.forward, figures.backward}) {
      EXPECT_NEAR(pass.taken, pass.computed + pass.copied, kClose);
    }
    EXPECT_GE(Seconds(figures), Seconds(Replay(random.Program(policy), Ample())) - kClose);
  });
}

TEST(ReplayRandomTest, AFasterLinkIsNeverSlower) {
  ForEachCase([](const RandomCase& random, SwapPolicy policy) {
    double last = kEver;
    for (const double faster : {0.25, 0.5, 1.0, 1.5, 4.0, 1e6}) {
      const double seconds = Seconds(Replay(random.Program(policy, faster), Ample()));
      EXPECT_LE(seconds, last + kClose);
      last = seconds;
    }
    EXPECT_NEAR(last, Seconds(Replay(random.Program(SwapPolicy::kNone), Ample())), 1e-3);
  });
}

// Of what is never refused.
size_t SmallBytesOf(const AllocationTrace& trace) {
  size_t bytes = 0;
  for (const AllocationTrace::Block& block : trace.blocks) {
    bytes += block.bytes < MemoryPool::kSmall ? block.bytes : 0;
  }
  return bytes;
}

// A layer more, which does nothing, so that the curve's last point is what is left.
ReplayFigures ReplayToItsEnd(ReplayProgram program, const ReplayOptions& options) {
  program.layers.emplace_back();
  return Replay(program, options);
}

TEST(ReplayRandomTest, InEveryPoolTheStepFitsAsAWholeOrNamesABlock) {
  int64_t fits = 0;
  int64_t fails = 0;
  int64_t waits = 0;
  int64_t evictions = 0;
  int64_t shortages = 0;
  ForEachCase([&](const RandomCase& random, SwapPolicy policy) {
    const ReplayProgram program = random.Program(policy);
    for (const PoolKind kind : {PoolKind::kBestFit, PoolKind::kFirstFit, PoolKind::kGtbm}) {
      const ReplayFigures ample = Replay(program, Ample(kind));
      for (int part = 0; part <= 16; ++part) {
        ReplayOptions options = Ample(kind);
        options.limit = ample.extent * part / 16;
        options.beta = part % 2 == 0 ? 0 : options.limit / 8;
        options.overlaps = part % 5 != 0;
        const ReplayFigures figures = ReplayToItsEnd(program, options);
        EXPECT_LE(figures.peak_occupied, options.limit + SmallBytesOf(random.trace));
        if (figures.failed_block >= 0) {
          ASSERT_LT(figures.failed_block, static_cast<int>(program.requests.size()));
          ++fails;
          continue;
        }
        ++fits;
        waits += figures.waits;
        evictions += figures.evictions;
        shortages += figures.shortages;
        EXPECT_LE(figures.shortages, options.beta > 0 ? 1 : 0);
        EXPECT_EQ(figures.curve.back().live, LeftBy(random.trace));
        ExpectBounds(figures);
        EXPECT_NEAR(figures.forward.computed, ample.forward.computed, kClose);
        EXPECT_NEAR(figures.backward.computed, ample.backward.computed, kClose);
        EXPECT_GE(figures.swapped_bytes, ample.swapped_bytes);
        EXPECT_EQ(figures.swapped_bytes > ample.swapped_bytes, figures.evictions > 0);
      }
    }
  });
  // All of it came about.
  EXPECT_GT(fits, 100);
  EXPECT_GT(fails, 100);
  EXPECT_GT(waits, 100);
  EXPECT_GT(evictions, 100);
  EXPECT_GT(shortages, 100);
}

}  // namespace
}  // namespace trepak
