#include "ops/runtime/rna/rna_contributions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using Combine = RnaContributions::Combine;

constexpr size_t kBytes = 2 * sizeof(float);

Gradient Of(uint64_t version, uint64_t samples, float first, float second, double rate = 0.1) {
  const float values[] = {first, second};
  return {Payload::Copy(values, sizeof(values)), version, samples, rate};
}

struct Taken {
  Contribution about;
  std::vector<float> values;
};

Taken Take(RnaContributions* contributions, uint64_t round) {
  Taken taken;
  taken.values.assign(2, -1.0f);
  taken.about = contributions->Take(round);
  taken.about.CombineInto(ElementType::kFloat32, kBytes, taken.values.data());
  return taken;
}

RnaContributions Make(uint64_t staleness, Combine combine = Combine::kByVersion) {
  return RnaContributions(ElementType::kFloat32, kBytes, staleness, combine);
}

TEST(RnaContributionsTest, NothingIsANullGradient) {
  RnaContributions contributions = Make(3);
  EXPECT_TRUE(contributions.empty());
  const Taken taken = Take(&contributions, 0);
  EXPECT_EQ(taken.about.gradients, 0u);
  EXPECT_THAT(taken.values, ElementsAre(0.0f, 0.0f));
}

TEST(RnaContributionsTest, OneGradientIsItselfAndThenForgotten) {
  RnaContributions contributions = Make(3);
  contributions.Add(Of(4, 32, 1, -2));
  EXPECT_FALSE(contributions.empty());
  const Taken taken = Take(&contributions, 6);
  EXPECT_THAT(taken.values, ElementsAre(1.0f, -2.0f));
  EXPECT_EQ(taken.about.gradients, 1u);
  EXPECT_EQ(taken.about.samples, 32u);
  EXPECT_EQ(taken.about.staleness, 2u);
  EXPECT_EQ(Take(&contributions, 7).about.gradients, 0u);
}

// Versions 3, 4 (twice) and 6 weigh 1, 2 and 4: 1 * 1 + 2 * (2 + 3) + 4 * 5 over 1 + 2 + 2 + 4.
TEST(RnaContributionsTest, NewerVersionsWeighMore) {
  RnaContributions contributions = Make(10);
  contributions.Add(Of(4, 8, 2, 0));
  contributions.Add(Of(3, 8, 1, 0));
  contributions.Add(Of(6, 8, 5, 9));
  contributions.Add(Of(4, 8, 3, 0));
  const Taken taken = Take(&contributions, 6);
  EXPECT_THAT(taken.values, ElementsAre(FloatEq(31.0f / 9), FloatEq(4.0f)));
  EXPECT_EQ(taken.about.gradients, 4u);
  EXPECT_EQ(taken.about.samples, 32u);
  EXPECT_EQ(taken.about.staleness, 3u);
}

TEST(RnaContributionsTest, SumsWhereAskedTo) {
  RnaContributions contributions = Make(10, Combine::kSum);
  contributions.Add(Of(1, 1, 2, 1));
  contributions.Add(Of(2, 1, 3, 1));
  EXPECT_THAT(Take(&contributions, 3).values, ElementsAre(5.0f, 2.0f));
}

TEST(RnaContributionsTest, TooStaleOnesAreDroppedAndCounted) {
  RnaContributions contributions = Make(2);
  contributions.Add(Of(0, 4, 9, 9));
  contributions.Add(Of(0, 4, 9, 9));
  contributions.Add(Of(1, 4, 5, 6));
  contributions.Expire(2);
  EXPECT_EQ(contributions.dropped(), 0u);
  const Taken taken = Take(&contributions, 3);
  EXPECT_THAT(taken.values, ElementsAre(5.0f, 6.0f));
  EXPECT_EQ(taken.about.gradients, 1u);
  EXPECT_EQ(taken.about.staleness, 2u);
  EXPECT_EQ(taken.about.samples, 12u) << "an epoch is made of what was computed";
  EXPECT_EQ(contributions.dropped(), 2u);
}

TEST(RnaContributionsTest, WhatIsNotFiniteContributesItsSamplesAlone) {
  RnaContributions contributions = Make(2);
  contributions.Add({Payload(), 0, 16, 0.1});
  EXPECT_FALSE(contributions.empty()) << "who waits for a round must not wait for ever";
  EXPECT_EQ(contributions.not_finite(), 1u);
  const Taken taken = Take(&contributions, 0);
  EXPECT_EQ(taken.about.gradients, 0u);
  EXPECT_EQ(taken.about.samples, 16u);
  EXPECT_TRUE(contributions.empty());
}

TEST(RnaContributionsTest, TheLatestLearningRateCounts) {
  RnaContributions contributions = Make(2);
  contributions.Add(Of(0, 1, 1, 1, 0.5));
  contributions.Add(Of(1, 1, 1, 1, 0.25));
  EXPECT_EQ(Take(&contributions, 1).about.rate, 0.25);
}

TEST(RnaContributionsTest, DoublesToo) {
  RnaContributions contributions(ElementType::kFloat64, sizeof(double), 3, Combine::kByVersion);
  for (const double value : {1.0, 4.0}) {
    contributions.Add({Payload::Copy(&value, sizeof(value)), value == 1.0 ? 0u : 1u, 1, 0.1});
  }
  double taken = 0;
  contributions.Take(1).CombineInto(ElementType::kFloat64, sizeof(double), &taken);
  EXPECT_DOUBLE_EQ(taken, 3.0);
}

}  // namespace
}  // namespace trepak
