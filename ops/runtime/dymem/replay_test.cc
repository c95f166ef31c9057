// A step of a convolution and an activation, all of whose figures are worked out by hand.

#include "ops/runtime/dymem/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ops/runtime/dymem/replay_testing.h"

namespace trepak {
namespace {

using testing::ElementsAre;

// The chain is: images, 0 (the convolution), 1 (the activation), loss, d1, d0/filter.
struct Layer {
  double seconds;
  size_t bytes;
};
const std::map<std::string, Layer> kLayers = {
    {"weights", {0, 8 * kKilo}},  {"images", {1, 48 * kKilo}}, {"0", {4, 16 * kKilo}},
    {"1", {4, 16 * kKilo}},       {"loss", {1, 16 * kKilo}},   {"d1", {1, 16 * kKilo}},
    {"d0/filter", {4, 8 * kKilo}}};

ReplayProgram Program(SwapPolicy policy, double link_bytes_per_second = 8 * kKilo) {
  const TestStep step = LinearStep({LayerKind::kConvolution, LayerKind::kActivation});
  const auto work = WorkOf(step, [](const std::string& name) { return kLayers.at(name).seconds; });
  const auto trace = TraceOf(step, [](const std::string& name) { return kLayers.at(name).bytes; });
  return MakeReplayProgram(step.graph(), work, trace, policy, {1, 1, link_bytes_per_second});
}

void ExpectPass(const ReplayPass& pass, double taken, double computed, double copied,
                double bound) {
  EXPECT_DOUBLE_EQ(pass.taken, taken);
  EXPECT_DOUBLE_EQ(pass.computed, computed);
  EXPECT_DOUBLE_EQ(pass.copied, copied);
  EXPECT_DOUBLE_EQ(pass.bound, bound);
}

std::vector<size_t> LiveKilobytes(const ReplayFigures& figures) {
  std::vector<size_t> live;
  for (const ReplayPoint& point : figures.curve) {
    EXPECT_EQ(point.live % kKilo, 0U);
    live.push_back(point.live / kKilo);
  }
  return live;
}

void ExpectNothingShort(const ReplayFigures& figures) {
  EXPECT_EQ(figures.failed_block, -1);
  EXPECT_EQ(figures.shortages, 0);
  EXPECT_EQ(figures.waits, 0);
  EXPECT_EQ(figures.evictions, 0);
}

TEST(ReplayTest, WithoutSwapsLayersFollowEachOther) {
  const ReplayFigures figures = Replay(Program(SwapPolicy::kNone), Ample());
  ExpectNothingShort(figures);
  ExpectPass(figures.forward, 9, 9, 0, 9);
  ExpectPass(figures.backward, 6, 6, 0, 6);
  EXPECT_EQ(figures.swapped_bytes, 0U);
  EXPECT_THAT(LiveKilobytes(figures), ElementsAre(56, 72, 88, 104, 104, 80));
  EXPECT_EQ(figures.peak_live, 104 * kKilo);
}

TEST(ReplayTest, DymemsCopiesRunBesideAllLayers) {
  const ReplayFigures figures = Replay(Program(SwapPolicy::kDymem), Ample());
  ExpectNothingShort(figures);
  // The images leave from 1 to 7, "0" from then to 9, when "1" ends.
  ExpectPass(figures.forward, 9, 9, 8, 9);
  // "0" comes from 9 to 11, when d1 begins; the images from then to 17, when the last layer does.
  ExpectPass(figures.backward, 12, 6, 8, 12);
  EXPECT_EQ(figures.swapped_bytes, 64 * kKilo);
  // While "1" runs, the images leave. Beside "loss" is "0" again, beside "d1" the images.
  EXPECT_THAT(LiveKilobytes(figures), ElementsAre(56, 72, 88, 56, 104, 80));
  EXPECT_EQ(figures.peak_live, 104 * kKilo);
}

TEST(ReplayTest, VdnnsLayersWaitForTheCopiesBesideTheOneBefore) {
  const ReplayFigures figures = Replay(Program(SwapPolicy::kVdnn), Ample());
  ExpectNothingShort(figures);
  // The images leave from 1 to 7, beside "0", which ends at 5; "0" leaves from 7 to 9, beside "1",
  // which ends at 11.
  ExpectPass(figures.forward, 11, 9, 8, 9);
  // "0" comes from 11 to 13, beside "loss"; the images from then to 19, beside "d1".
  ExpectPass(figures.backward, 12, 6, 8, 12);
  EXPECT_THAT(LiveKilobytes(figures), ElementsAre(56, 72, 40, 56, 104, 80));
}

TEST(ReplayTest, VdnnsLayersWaitOnEitherSide) {
  // Copies are four times as fast: the images take 1.5 s, "0" takes 0.5.
  const ReplayFigures figures = Replay(Program(SwapPolicy::kVdnn, 32 * kKilo), Ample());
  ExpectPass(figures.forward, 9, 9, 2, 9);
  // Nothing waits but "d0/filter": the images come beside "d1", which takes 1 s.
  ExpectPass(figures.backward, 6.5, 6, 2, 6);
  const ReplayFigures dymem = Replay(Program(SwapPolicy::kDymem, 32 * kKilo), Ample());
  ExpectPass(dymem.backward, 6, 6, 2, 6);
}

TEST(ReplayTest, OnASlowLinkCopiesDecide) {
  const ReplayFigures figures = Replay(Program(SwapPolicy::kDymem, 4 * kKilo), Ample());
  // The images leave from 1 to 13, "0" from then to 17.
  ExpectPass(figures.forward, 17, 9, 16, 17);
  // The images are there after 16 s, for the last layer.
  ExpectPass(figures.backward, 20, 6, 16, 20);
}

TEST(ReplayTest, SuperNeuronsMovesInputsOfConvolutions) {
  const ReplayFigures figures = Replay(Program(SwapPolicy::kSuperNeurons), Ample());
  ExpectNothingShort(figures);
  ExpectPass(figures.forward, 9, 9, 6, 9);
  // The images come from 9 to 15.
  ExpectPass(figures.backward, 10, 6, 6, 10);
  EXPECT_EQ(figures.swapped_bytes, 48 * kKilo);
}

TEST(ReplayTest, WithoutOverlapEveryCopyIsWaitedFor) {
  ReplayOptions options = Ample();
  options.overlaps = false;
  for (const SwapPolicy policy : {SwapPolicy::kDymem, SwapPolicy::kVdnn}) {
    const ReplayFigures figures = Replay(Program(policy), options);
    ExpectNothingShort(figures);
    EXPECT_DOUBLE_EQ(figures.forward.taken, 17);
    EXPECT_DOUBLE_EQ(figures.backward.taken, 14);
  }
}

TEST(ReplayTest, FirstFitLeavesHoles) {
  // Blocks follow each other up to "loss", which ends at 104 KB. "d1" lies where "1" was.
  ReplayOptions options = Ample(PoolKind::kFirstFit);
  options.limit = 108 * kKilo;
  const ReplayFigures figures = Replay(Program(SwapPolicy::kNone), options);
  ExpectNothingShort(figures);
  std::vector<size_t> occupied;
  for (const ReplayPoint& point : figures.curve) {
    occupied.push_back(point.occupied / kKilo);
  }
  EXPECT_THAT(occupied, ElementsAre(56, 72, 88, 104, 104, 88));
  EXPECT_EQ(figures.peak_occupied, 104 * kKilo);
  EXPECT_EQ(figures.extent, 104 * kKilo);
  // Only "d1" finds a free block that is too small for it: the last 4 KB of 20.
  EXPECT_DOUBLE_EQ(figures.fragmentation, 4.0 / 20 / 7);
}

TEST(ReplayTest, APoolTooSmallNamesWhatFoundNoRoom) {
  // "loss" needs 104 KB, "1" 88, "0" 72, and the images 56.
  const std::vector<std::pair<size_t, int>> failures = {{104, -1}, {100, 4}, {84, 3},
                                                        {68, 2},   {52, 1},  {4, 0}};
  for (const auto& [kilobytes, block] : failures) {
    ReplayOptions options = Ample(PoolKind::kFirstFit);
    options.limit = kilobytes * kKilo;
    EXPECT_EQ(Replay(Program(SwapPolicy::kNone), options).failed_block, block) << kilobytes;
  }
}

TEST(ReplayTest, JitterStretchesLayersOnly) {
  ReplayOptions options = Ample();
  options.jitter = 0.25;
  const auto run = [&](uint64_t seed) {
    options.seed = seed;
    return Replay(Program(SwapPolicy::kDymem), options);
  };
  const ReplayFigures figures = run(1);
  EXPECT_NE(figures.forward.computed, 9);
  EXPECT_NEAR(figures.forward.computed, 9, 9 * options.jitter);
  EXPECT_NEAR(figures.backward.computed, 6, 6 * options.jitter);
  EXPECT_DOUBLE_EQ(figures.forward.copied, 8);
  EXPECT_EQ(run(1).forward.taken, figures.forward.taken);
  EXPECT_EQ(run(1).backward.taken, figures.backward.taken);
  EXPECT_NE(run(2).forward.taken, figures.forward.taken);
  options.jitter = 0;
  EXPECT_EQ(run(1).forward.taken, 9);
  EXPECT_EQ(run(2).forward.taken, 9);
}

}  // namespace
}  // namespace trepak
