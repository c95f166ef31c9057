#include "ops/runtime/elastic_bsp/elastic_bsp_grants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

namespace trepak {
namespace {

using Progress = ElasticBspGrants::Progress;
using Wait = ElasticBspGrants::Wait;
using std::chrono::milliseconds;
using testing::HasSubstr;

class ElasticBspGrantsTest : public testing::Test {
 protected:
  // Takes a step, and returns what the coordinator is told.
  Progress EndStep() {
    Progress told;
    EXPECT_TRUE(grants_
                    .EndStep(ElasticBspGrants::Clock::now(),
                             [&](const Progress& at) {
                               told = at;
                               return OkStatus();
                             })
                    .ok());
    return told;
  }

  // Comes to the barrier that begins this superstep, of which one step is granted.
  void MeetAtBarrier(uint64_t superstep) {
    EXPECT_EQ(EndStep().wait, Wait::kForGrant);
    EXPECT_TRUE(grants_.Take({grants_.progress().steps + 1, superstep, 2, 1}));
  }

  ElasticBspGrants grants_;
  int pushed_ = 0;
  const ElasticBspGrants::Push count_ = [this] { ++pushed_; };
};

TEST_F(ElasticBspGrantsTest, WaitsAfterAsManyStepsAsWereGranted) {
  EXPECT_FALSE(grants_.Take({2, 1, 2, 0})) << "it does not wait";
  EXPECT_EQ(EndStep().wait, Wait::kNone);
  const Progress told = EndStep();
  EXPECT_EQ(told.steps, 2u);
  EXPECT_EQ(told.wait, Wait::kForGrant);
  EXPECT_FALSE(grants_.Take({2, 1, 2, 0})) << "no more than it has taken";
  const std::optional<Progress> waited = grants_.Take({3, 1, 2, 0});
  ASSERT_TRUE(waited.has_value());
  EXPECT_EQ(waited->wait, Wait::kForGrant);
  EXPECT_EQ(waited->waits_since, told.waits_since);
  EXPECT_GE(waited->waited_until, waited->waits_since);
  EXPECT_EQ(grants_.progress().wait, Wait::kNone);
  EXPECT_FALSE(grants_.Take({4, 1, 2, 0})) << "it has gone on";
}

TEST_F(ElasticBspGrantsTest, KnowsWhereASuperstepBegan) {
  grants_.Take({3, 5, 2, 0});
  const auto since = grants_.progress().superstep_since;
  EndStep();
  std::this_thread::sleep_for(milliseconds(1));
  grants_.Take({3, 5, 2, 0});
  EXPECT_EQ(grants_.progress().superstep_since, since) << "it is the same";
  EXPECT_EQ(grants_.progress().steps_before_superstep, 0u);
  EXPECT_GT(grants_.progress().heard, since);
  grants_.Take({3, 6, 2, 0});
  EXPECT_EQ(grants_.progress().superstep, 6u);
  EXPECT_EQ(grants_.progress().steps_before_superstep, 1u);
  EXPECT_GT(grants_.progress().superstep_since, since);
}

TEST_F(ElasticBspGrantsTest, ABarrierShutsTheGateUntilAllHaveFetched) {
  EXPECT_TRUE(grants_.PassesGate(count_)) << "there was no barrier";
  MeetAtBarrier(2);
  EXPECT_TRUE(grants_.progress().is_gated);
  EXPECT_FALSE(grants_.PassesGate(count_));
  EXPECT_EQ(grants_.progress().wait, Wait::kAtGate);
  EXPECT_FALSE(grants_.Take({9, 2, 2, 0})) << "that is not what it waits for";
  ElasticBspGrants::Push push;
  EXPECT_FALSE(grants_.OpenGate(1, &push)) << "of an earlier barrier";
  EXPECT_EQ(push, nullptr);
  const std::optional<Progress> waited = grants_.OpenGate(2, &push);
  ASSERT_TRUE(waited.has_value());
  EXPECT_EQ(waited->wait, Wait::kAtGate);
  ASSERT_NE(push, nullptr);
  push();
  EXPECT_EQ(pushed_, 1);
  EXPECT_FALSE(grants_.OpenGate(2, &push)) << "it has passed";
  EXPECT_EQ(push, nullptr);
}

TEST_F(ElasticBspGrantsTest, AGateThatHasOpenedBeforeLetsAChangePass) {
  MeetAtBarrier(1);
  ElasticBspGrants::Push push;
  EXPECT_FALSE(grants_.OpenGate(1, &push));
  EXPECT_TRUE(grants_.PassesGate(count_));
  MeetAtBarrier(2);
  EXPECT_FALSE(grants_.OpenGate(1, &push)) << "of the barrier before";
  EXPECT_FALSE(grants_.PassesGate(count_));
}

TEST_F(ElasticBspGrantsTest, ADrainOpensTheGateAndVoidsWhatWasGranted) {
  MeetAtBarrier(1);
  grants_.Take({10, 1, 2, 0});
  EXPECT_FALSE(grants_.EndDrain()) << "nobody drains";
  const Progress at = grants_.BeginDrain();
  EXPECT_EQ(at.wait, Wait::kForDrain);
  EXPECT_EQ(at.steps, 1u);
  const std::optional<Progress> waited = grants_.EndDrain();
  ASSERT_TRUE(waited.has_value());
  EXPECT_EQ(waited->wait, Wait::kForDrain);
  EXPECT_EQ(waited->waits_since, at.waits_since);
  EXPECT_TRUE(grants_.PassesGate(count_));
  EXPECT_EQ(EndStep().wait, Wait::kForGrant);
}

TEST_F(ElasticBspGrantsTest, ReturnsWhyTheCoordinatorWasNotTold) {
  const Status status = grants_.EndStep(ElasticBspGrants::Clock::now(), [](const Progress&) {
    return UnavailableError("there is no flow");
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no flow"));
}

TEST_F(ElasticBspGrantsTest, AGrantDoesNotComeWhileTheCoordinatorIsTold) {
  std::atomic<bool> told{false};
  std::thread grant;
  ASSERT_TRUE(grants_
                  .EndStep(ElasticBspGrants::Clock::now(),
                           [&](const Progress&) {
                             grant = std::thread([&] {
                               EXPECT_TRUE(grants_.Take({2, 0, 2, 0}));
                               EXPECT_TRUE(told);
                             });
                             std::this_thread::sleep_for(milliseconds(50));
                             told = true;
                             return OkStatus();
                           })
                  .ok());
  grant.join();
}

// An order that comes as the rank begins to wait is seen by one of them.
TEST_F(ElasticBspGrantsTest, NoGrantAndNoOpeningIsMissed) {
  for (uint64_t step = 1; step <= 2000; ++step) {
    std::atomic<bool> goes_on{false};
    std::thread coordinator([&] {
      if (grants_.Take({step + 1, 0, 2, 0})) {
        goes_on = true;
      }
    });
    const bool waits = EndStep().wait == Wait::kForGrant;
    coordinator.join();
    ASSERT_EQ(waits, goes_on) << "step " << step;
  }
  uint64_t superstep = 0;
  for (int round = 0; round < 2000; ++round) {
    MeetAtBarrier(++superstep);
    std::atomic<bool> opened{false};
    std::thread coordinator([&] {
      ElasticBspGrants::Push push;
      if (grants_.OpenGate(superstep, &push)) {
        opened = true;
      }
    });
    const bool passes = grants_.PassesGate(count_);
    coordinator.join();
    ASSERT_NE(passes, opened) << "superstep " << superstep;
  }
}

}  // namespace
}  // namespace trepak
