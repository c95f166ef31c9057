#include "ops/runtime/rna/rna_contributor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A rank whose answers to the coordinator are kept.
class RnaContributorTest : public testing::Test {
 protected:
  using Sent = std::tuple<MessageKind, uint64_t, uint8_t>;

  RnaContributor Make(uint64_t staleness = 100, bool aligned = false) {
    RnaRules rules;
    rules.elements = 1;
    rules.staleness = staleness;
    rules.aligned = aligned;
    return RnaContributor(rules, "rank 7", [this](MessageKind kind, uint64_t round, uint8_t flags) {
      sent_.emplace_back(kind, round, flags);
      return OkStatus();
    });
  }

  static Status Write(RnaContributor* contributor, float value, uint64_t version = 0) {
    return contributor->Write({Payload::Copy(&value, sizeof(value)), version, 1, 0.1}, kNow);
  }

  // Takes part in a round that has started, and returns how many gradients it was given.
  static uint32_t TakePart(RnaContributor* contributor, bool changes) {
    const uint32_t gradients = contributor->Take().gradients;
    contributor->End(changes);
    return gradients;
  }

  static constexpr RnaContributor::Clock::time_point kNow{};
  std::vector<Sent> sent_;
};

TEST_F(RnaContributorTest, AProbeIsAnsweredOnceThereIsAGradient) {
  RnaContributor early = Make();
  ASSERT_TRUE(early.Probe(0).ok());
  EXPECT_THAT(sent_, IsEmpty());
  ASSERT_TRUE(Write(&early, 1).ok());
  ASSERT_TRUE(Write(&early, 1).ok());
  EXPECT_THAT(sent_, ElementsAre(FieldsAre(rna::kReady, 0, 0)));
  RnaContributor late = Make();
  ASSERT_TRUE(Write(&late, 1).ok());
  ASSERT_TRUE(late.Probe(0).ok());
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(RnaContributorTest, ARoundThatStartsExpiresTheProbe) {
  RnaContributor contributor = Make();
  ASSERT_TRUE(contributor.Probe(0).ok());
  contributor.Start();
  EXPECT_EQ(TakePart(&contributor, true), 0u);
  ASSERT_TRUE(Write(&contributor, 1, 1).ok());
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(RnaContributorTest, WhatARunningRoundWillTakeAnswersNoProbe) {
  RnaContributor contributor = Make();
  contributor.Start();
  ASSERT_TRUE(contributor.Probe(1).ok());
  ASSERT_TRUE(Write(&contributor, 1).ok());
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_TRUE(contributor.progress().has_gradients);
  EXPECT_EQ(TakePart(&contributor, true), 1u);
  ASSERT_TRUE(Write(&contributor, 1, 1).ok());
  EXPECT_THAT(sent_, ElementsAre(FieldsAre(rna::kReady, 1, 0)));
  EXPECT_EQ(contributor.progress().started, 1u);
  EXPECT_EQ(contributor.progress().taken, 1u);
}

TEST_F(RnaContributorTest, AGradientThatIsTooStaleForTheNextRoundAnswersNoProbe) {
  RnaContributor contributor = Make(0);
  contributor.Start();
  TakePart(&contributor, false);  // which leaves version 0
  ASSERT_TRUE(Write(&contributor, 1, 0).ok());
  contributor.Start();
  EXPECT_EQ(contributor.Take().gradients, 1u);
  ASSERT_TRUE(contributor.Probe(2).ok());
  ASSERT_TRUE(Write(&contributor, 1, 0).ok());  // the round under way is taken to make version 1
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(contributor.counters().dropped, 1u);
  contributor.End(true);
  ASSERT_TRUE(Write(&contributor, 1, 1).ok());
  EXPECT_THAT(sent_, ElementsAre(FieldsAre(rna::kReady, 2, 0)));
}

TEST_F(RnaContributorTest, AnAlignedStepAnswersForTheRoundOfItsNumber) {
  RnaContributor contributor = Make(100, true);
  ASSERT_TRUE(Write(&contributor, 1).ok());
  contributor.Start();
  TakePart(&contributor, true);
  contributor.Start();
  TakePart(&contributor, true);
  ASSERT_TRUE(contributor.Probe(2).ok());
  ASSERT_TRUE(Write(&contributor, 1).ok());  // step 1, late
  EXPECT_THAT(sent_, IsEmpty());
  ASSERT_TRUE(Write(&contributor, 1).ok());
  EXPECT_THAT(sent_, ElementsAre(FieldsAre(rna::kReady, 2, 0)));
  EXPECT_EQ(contributor.progress().due, 3u);
  ASSERT_TRUE(contributor.Drain().ok());
  contributor.EndDrain(5);
  EXPECT_EQ(contributor.progress().due, 5u);
}

TEST_F(RnaContributorTest, WhoDrainsSaysWhatIsLeftAndWritesNoMore) {
  RnaContributor contributor = Make();
  ASSERT_TRUE(contributor.Probe(0).ok());
  ASSERT_TRUE(contributor.Drain().ok());
  const std::string message(Write(&contributor, 1).message());
  EXPECT_THAT(message, HasSubstr("rank 7 wrote gradients while it drains"));
  contributor.EndDrain({});
  ASSERT_TRUE(Write(&contributor, 1).ok());
  ASSERT_TRUE(contributor.Drain().ok());
  contributor.EndDrain({});
  contributor.Start();  // takes it
  ASSERT_TRUE(contributor.Drain().ok());
  EXPECT_THAT(sent_, ElementsAre(FieldsAre(coordination::kDrain, 0, 0),
                                 FieldsAre(coordination::kDrain, 0, rna::kHasGradients),
                                 FieldsAre(coordination::kDrain, 1, 0)));
}

TEST_F(RnaContributorTest, StepsAreTimedUntilAPauseOrADrain) {
  RnaContributor contributor = Make();
  const auto step = [&](int at) {
    const auto stepped = contributor.CountStep(kNow + milliseconds(at), milliseconds(50));
    EXPECT_TRUE(contributor.Write({Payload(), 0, 1, 0.1}, kNow + milliseconds(at)).ok());
    return stepped;
  };
  EXPECT_EQ(step(100), milliseconds(0));
  EXPECT_EQ(step(110), milliseconds(10));
  EXPECT_EQ(step(130), milliseconds(30));
  EXPECT_EQ(step(180), milliseconds(0)) << "a pause";
  EXPECT_EQ(step(190), milliseconds(10));
  contributor.Start();
  TakePart(&contributor, false);
  EXPECT_EQ(step(200), milliseconds(0)) << "a round has taken what there was";
  ASSERT_TRUE(contributor.Drain().ok());
  contributor.EndDrain({});
  EXPECT_EQ(step(210), milliseconds(0));
  contributor.CountCopying(milliseconds(3));
  const RnaContributor::Counters counters = contributor.counters();
  EXPECT_EQ(counters.steps, 5u);
  EXPECT_EQ(counters.step_nanoseconds, 100'000'000u);
  EXPECT_EQ(counters.copy_nanoseconds, 3'000'000u);
  EXPECT_EQ(counters.not_finite, 7u);
}

}  // namespace
}  // namespace trepak
