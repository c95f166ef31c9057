// What a replay does when memory is short, in programs that are written by hand.

#include <gtest/gtest.h>

#include <vector>

#include "ops/runtime/dymem/replay.h"
#include "ops/runtime/dymem/replay_testing.h"

namespace trepak {
namespace {

// Builds a program, layer by layer.
class Script {
 public:
  int Block(size_t bytes) {
    program_.requests.push_back({bytes, Mobility::kMovable, 1});
    return static_cast<int>(program_.requests.size()) - 1;
  }
  void Layer(const std::vector<int>& allocated, const std::vector<int>& freed = {}) {
    ReplayProgram::Layer layer;
    layer.seconds = 1;
    for (const int block : allocated) {
      layer.events.push_back({block, false});
    }
    layer.at_begin = allocated.size();
    for (const int block : freed) {
      layer.events.push_back({block, true});
    }
    program_.layers.push_back(layer);
  }
  void Backward() { program_.first_backward = static_cast<int>(program_.layers.size()); }
  // Of a block that the first layers make and read: it leaves behind layer `made`, which the next
  // one reads.
  void Swap(int block, double seconds, int made, int fetch_at, int needed_at) {
    program_.copies.push_back(
        {block, seconds, made, made + 1, fetch_at, needed_at, program_.requests[block].bytes});
  }

  ReplayFigures Run(size_t limit, size_t beta = 0) const {
    ReplayOptions options;
    options.kind = PoolKind::kFirstFit;
    options.limit = limit;
    options.beta = beta;
    return Replay(program_, options);
  }

 private:
  ReplayProgram program_;
};

TEST(ReplayShortageTest, WaitsForTheOffloadThatFreesEnough) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int b = script.Block(8 * kKilo);
  const int c = script.Block(16 * kKilo);
  const int d = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({b});
  script.Layer({d});
  script.Layer({c});  // at 3; a leaves from 1 to 5, b from then to 7
  script.Backward();
  script.Layer({}, {c, d});
  script.Layer({});
  script.Swap(b, 2, 1, 4, 5);
  script.Swap(a, 4, 0, 5, 5);
  const ReplayFigures ample = script.Run(64 * kKilo);
  EXPECT_EQ(ample.waits, 0);
  EXPECT_DOUBLE_EQ(ample.forward.taken, 7);
  const ReplayFigures figures = script.Run(32 * kKilo);
  EXPECT_EQ(figures.failed_block, -1);
  EXPECT_EQ(figures.waits, 2);
  EXPECT_DOUBLE_EQ(figures.forward.taken, 8);
  EXPECT_DOUBLE_EQ(figures.forward.computed, 4);
}

TEST(ReplayShortageTest, BetaComesBeforeWaiting) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int b = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({b});
  script.Layer({c});  // at 2; a leaves from 1 to 11
  script.Backward();
  script.Layer({}, {b, c});
  script.Layer({});
  script.Swap(a, 10, 0, 4, 4);
  const ReplayFigures waits = script.Run(16 * kKilo);
  EXPECT_EQ(waits.shortages, 0);
  EXPECT_EQ(waits.waits, 1);
  EXPECT_DOUBLE_EQ(waits.forward.taken, 12);
  const ReplayFigures committed = script.Run(24 * kKilo, 8 * kKilo);
  EXPECT_EQ(committed.shortages, 1);
  EXPECT_EQ(committed.waits, 0);
  EXPECT_DOUBLE_EQ(committed.forward.taken, 11);
  // It is not committed by what fits, and it is no more than it is.
  EXPECT_EQ(script.Run(32 * kKilo, 8 * kKilo).shortages, 0);
  const ReplayFigures both = script.Run(18 * kKilo, 2 * kKilo);
  EXPECT_EQ(both.shortages, 1);
  EXPECT_EQ(both.waits, 1);
}

TEST(ReplayShortageTest, APrefetchWithoutRoomIsTriedAgainWhenItIsNeeded) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int b = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({b});  // a leaves from 1 to 3
  script.Backward();
  script.Layer({c});      // from 3
  script.Layer({}, {b});  // from 4
  script.Layer({}, {a});
  script.Swap(a, 2, 0, 3, 4);
  const ReplayFigures ample = script.Run(24 * kKilo);
  EXPECT_DOUBLE_EQ(ample.backward.taken, 4);  // from 4 to 6 it comes
  const ReplayFigures figures = script.Run(16 * kKilo);
  EXPECT_EQ(figures.failed_block, -1);
  EXPECT_EQ(figures.waits, 0);
  EXPECT_EQ(figures.evictions, 0);
  EXPECT_DOUBLE_EQ(figures.backward.taken, 5);  // from 5 to 7
  EXPECT_DOUBLE_EQ(figures.backward.copied, 2);
}

TEST(ReplayShortageTest, WhatCameBackUnreadLeavesAgain) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int b = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({b});  // a leaves from 1 to 3
  script.Backward();
  script.Layer({c}, {b});  // a is coming from 3 to 5, and leaves again from then to 7
  script.Layer({}, {a});   // at 8 it comes again
  script.Swap(a, 2, 0, 2, 3);
  const ReplayFigures figures = script.Run(16 * kKilo);
  EXPECT_EQ(figures.failed_block, -1);
  EXPECT_EQ(figures.evictions, 1);
  EXPECT_EQ(figures.waits, 1);
  EXPECT_EQ(figures.swapped_bytes, 16 * kKilo);
  EXPECT_DOUBLE_EQ(figures.forward.taken, 3);
  EXPECT_DOUBLE_EQ(figures.backward.taken, 8);
  EXPECT_DOUBLE_EQ(figures.backward.copied, 6);
  EXPECT_EQ(figures.peak_live, 16 * kKilo);
}

TEST(ReplayShortageTest, WhatIsNeededLastLeavesFirst) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int b = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a, b});
  script.Layer({});  // a leaves from 1 to 2, b until 2.5
  script.Backward();
  script.Layer({});        // a comes from 2.5 to 3.5, b until 4
  script.Layer({});        // from 3.5
  script.Layer({c}, {c});  // at 4.5 b leaves, until 5
  script.Layer({}, {a});   // from 6
  script.Layer({}, {b});   // b comes from 7 to 7.5
  script.Swap(a, 1, 0, 2, 5);
  script.Swap(b, 0.5, 0, 2, 6);
  const ReplayFigures figures = script.Run(16 * kKilo);
  EXPECT_EQ(figures.evictions, 1);
  EXPECT_DOUBLE_EQ(figures.forward.taken, 2.5);
  EXPECT_DOUBLE_EQ(figures.backward.taken, 6);
}

TEST(ReplayShortageTest, AFetchThatIsNeededEvictsWhatIsNeededLater) {
  Script script;
  const int a = script.Block(16 * kKilo);
  const int b = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  const int d = script.Block(8 * kKilo);
  script.Layer({a, b});
  script.Layer({});  // a leaves from 1 to 2, b from then to 3
  script.Backward();
  script.Layer({c, d});
  script.Layer({}, {d});     // at 4 there is no room for a, but for b, which comes until 5
  script.Layer({}, {a, c});  // b leaves from 5 to 6, a comes from then to 7
  script.Layer({}, {b});     // b comes from 8 to 9
  script.Swap(a, 1, 0, 3, 4);
  script.Swap(b, 1, 0, 3, 5);
  const ReplayFigures figures = script.Run(24 * kKilo);
  EXPECT_EQ(figures.failed_block, -1);
  EXPECT_EQ(figures.evictions, 1);
  EXPECT_EQ(figures.waits, 1);
  EXPECT_DOUBLE_EQ(figures.backward.taken, 7);
}

TEST(ReplayShortageTest, AFetchThatIsNeededTakesBetaAtOnce) {
  Script script;
  const int a = script.Block(16 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({});  // a leaves from 1 to 2
  script.Backward();
  script.Layer({c});
  script.Layer({});       // a prefetch does not take it, from 3 on
  script.Layer({}, {a});  // from 4 to 5 it comes
  script.Swap(a, 1, 0, 3, 4);
  const ReplayFigures figures = script.Run(24 * kKilo, 8 * kKilo);
  EXPECT_EQ(figures.failed_block, -1);
  EXPECT_EQ(figures.shortages, 1);
  EXPECT_EQ(figures.evictions, 0);
  EXPECT_DOUBLE_EQ(figures.backward.taken, 4);
}

TEST(ReplayShortageTest, WhatIsReadJustNowStays) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({});
  script.Backward();
  script.Layer({c});  // which reads a
  script.Swap(a, 1, 0, 2, 2);
  EXPECT_EQ(script.Run(16 * kKilo).failed_block, -1);
  EXPECT_EQ(script.Run(16 * kKilo - 512).failed_block, c);
}

TEST(ReplayShortageTest, AFetchThatFindsNoRoomEndsTheReplay) {
  Script script;
  const int a = script.Block(8 * kKilo);
  const int c = script.Block(8 * kKilo);
  script.Layer({a});
  script.Layer({});
  script.Backward();
  script.Layer({c});
  script.Layer({}, {a});
  script.Swap(a, 1, 0, 3, 3);
  const ReplayFigures figures = script.Run(16 * kKilo - 512);
  EXPECT_EQ(figures.failed_block, a);
  EXPECT_EQ(figures.curve.size(), 4U);
}

TEST(ReplayShortageTest, WhatIsSmallTakesFromTheLimit) {
  Script script;
  script.Layer({script.Block(8 * kKilo)});
  script.Layer({script.Block(1000)});
  script.Layer({script.Block(8 * kKilo)});
  const ReplayFigures ample = script.Run(64 * kKilo);
  EXPECT_EQ(ample.peak_live, 16 * kKilo + 1000);
  EXPECT_EQ(ample.extent, 17 * kKilo);
  EXPECT_EQ(script.Run(17 * kKilo).failed_block, -1);
  EXPECT_EQ(script.Run(17 * kKilo - 512).failed_block, 2);
}

}  // namespace
}  // namespace trepak
