#include "ops/runtime/elastic_bsp/elastic_bsp_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

namespace trepak {
namespace {

using Progress = ElasticBspGrants::Progress;
using Wait = ElasticBspGrants::Wait;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Progress Waited(Wait wait, milliseconds since, milliseconds until) {
  Progress ended;
  ended.steps = 7;
  ended.superstep = 3;
  ended.wait = wait;
  ended.waits_since += since;
  ended.waited_until += until;
  return ended;
}

class ElasticBspMetricsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(timeline_.Open(path_, 1, "rank 1", "{}", 0, 0, 100).ok()); }

  // What the timeline shows.
  std::string Shown() {
    EXPECT_TRUE(timeline_.Close().ok());
    std::ifstream file(path_);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
  }

  const std::string path_ = testing::TempDir() + "elastic_bsp_metrics_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
  Timeline timeline_;
  ElasticBspMetrics metrics_{&timeline_, 2, 5};
};

TEST_F(ElasticBspMetricsTest, AStepHasTheTimesSinceTheOneBefore) {
  metrics_.Received(milliseconds(1000), 0);
  metrics_.Received(milliseconds(500), 0);
  metrics_.Waited(Waited(Wait::kAtGate, milliseconds(0), milliseconds(250)), 0);
  metrics_.Waited(Waited(Wait::kForGrant, milliseconds(0), milliseconds(10)), 4);
  const elastic_bsp::Stepped first = metrics_.EndStep();
  EXPECT_EQ(first.communicated, 1.5);
  EXPECT_EQ(first.held_up, 0.25);
  const elastic_bsp::Stepped second = metrics_.EndStep();
  EXPECT_EQ(second.communicated, 0);
  EXPECT_EQ(second.held_up, 0);
  const ElasticBspMetrics::Counters counters = metrics_.counters();
  EXPECT_EQ(counters.steps, 2u);
  EXPECT_EQ(counters.exchange_nanoseconds, 1'500'000'000u);
  EXPECT_EQ(counters.waiting_nanoseconds, 260'000'000u);
  EXPECT_EQ(counters.barriers, 1u);
  EXPECT_EQ(counters.met, 4u);
}

TEST_F(ElasticBspMetricsTest, SamplesAreTakenOnceAndNeverFewer) {
  metrics_.Received({}, 10);
  metrics_.Received({}, 8);  // that was sent earlier
  EXPECT_EQ(metrics_.TakeSamples(), 10u);
  EXPECT_EQ(metrics_.TakeSamples(), 0u);
  metrics_.Received({}, 12);
  EXPECT_EQ(metrics_.TakeSamples(), 2u);
}

TEST_F(ElasticBspMetricsTest, OnlyTheFirstStepThatIsLeftOutIsWarnedOf) {
  testing::internal::CaptureStderr();
  metrics_.LeaveOut("rank 1");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a step of rank 1 had gradients"));
  testing::internal::CaptureStderr();
  metrics_.LeaveOut("rank 1");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(metrics_.counters().not_finite, 2u);
}

TEST_F(ElasticBspMetricsTest, ABarrierIsShownAsARoundOfItsGroup) {
  metrics_.Waited(Waited(Wait::kForGrant, milliseconds(2), milliseconds(5)), 4);
  EXPECT_THAT(Shown(), HasSubstr("\"name\":\"barrier 3\",\"ts\":2000.000,\"dur\":3000.000,"
                                 "\"args\":{\"round\":3,\"group\":5,\"run\":0,\"steps\":7}"));
}

TEST_F(ElasticBspMetricsTest, OtherWaitsAreShownByTheirNames) {
  metrics_.Waited(Waited(Wait::kAtGate, milliseconds(0), milliseconds(1)), 0);
  metrics_.Waited(Waited(Wait::kForGrant, milliseconds(2), milliseconds(3)), 0);
  metrics_.Waited(Waited(Wait::kForDrain, milliseconds(4), milliseconds(5)), 0);
  EXPECT_THAT(Shown(), AllOf(HasSubstr("\"wait until all have fetched\",\"ts\":0.000"),
                             HasSubstr("\"wait for slower ranks\",\"ts\":2000.000"),
                             HasSubstr("\"wait for all to flush\",\"ts\":4000.000"),
                             HasSubstr("\"args\":{\"steps\":7}"), Not(HasSubstr("barrier"))));
}

TEST_F(ElasticBspMetricsTest, ASuperstepIsShownUntilTheRankWaits) {
  Progress at = Waited(Wait::kForGrant, milliseconds(9), {});
  at.superstep_since += milliseconds(4);
  at.steps_before_superstep = 5;
  metrics_.ShowSuperstep(at);
  EXPECT_THAT(Shown(), HasSubstr("\"name\":\"superstep 3\",\"ts\":4000.000,\"dur\":5000.000,"
                                 "\"args\":{\"superstep\":3,\"steps\":7}"));
}

TEST_F(ElasticBspMetricsTest, ASuperstepWithoutStepsIsNotShownAndNoneOfSsp) {
  Progress at = Waited(Wait::kForDrain, milliseconds(9), {});
  at.steps_before_superstep = at.steps;
  metrics_.ShowSuperstep(at);
  at.steps_before_superstep = 0;
  at.superstep = 0;
  metrics_.ShowSuperstep(at);
  EXPECT_THAT(Shown(), Not(HasSubstr("superstep")));
}

}  // namespace
}  // namespace trepak
