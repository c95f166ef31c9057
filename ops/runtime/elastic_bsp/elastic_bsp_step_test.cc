#include "ops/runtime/elastic_bsp/elastic_bsp_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Payload Pack(const std::vector<float>& values) {
  return Payload::Copy(values.data(), values.size() * sizeof(float));
}

std::vector<float> Unpack(const Payload& packed) {
  const auto* const values = static_cast<const float*>(packed.data());
  return std::vector<float>(values, values + packed.size() / sizeof(float));
}

class ElasticBspStepTest : public testing::Test {
 protected:
  // Keeps what each callback has been told.
  ElasticBspStep::Callback Keep() {
    return [this](const Status& status, const Payload& values) {
      told_.push_back(status);
      values_ = Unpack(values);
    };
  }

  std::optional<Payload> Begin(const std::vector<float>& values) {
    return step_.Begin(Pack(values), Keep());
  }

  const std::shared_ptr<ErrorLatch> errors_ = std::make_shared<ErrorLatch>();
  ElasticBspStep step_{"rank 3", ElementType::kFloat32, 2 * sizeof(float), errors_};
  std::vector<Status> told_;
  std::vector<float> values_;
};

TEST_F(ElasticBspStepTest, ChangesWhatItWentOnFromAndEndsWithWhatWasReceivedLast) {
  EXPECT_FALSE(step_.Receive(Pack({1, 2})));
  const std::optional<Payload> change = Begin({1.5, 1});
  ASSERT_TRUE(change.has_value());
  EXPECT_THAT(Unpack(*change), ElementsAre(0.5, -1));
  EXPECT_TRUE(step_.Receive(Pack({7, 7})));
  EXPECT_TRUE(step_.Receive(Pack({4, 5})));
  EXPECT_TRUE(told_.empty());
  step_.End(OkStatus());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].ok()) << told_[0];
  EXPECT_THAT(values_, ElementsAre(4, 5));
  EXPECT_THAT(Unpack(Begin({4, 6}).value()), ElementsAre(0, 1));
}

TEST_F(ElasticBspStepTest, KnowsWhetherValuesAreThoseThatItWentOnFrom) {
  step_.Receive(Pack({1, 2}));
  EXPECT_FALSE(step_.HasChanged(Pack({1, 2})));
  EXPECT_TRUE(step_.HasChanged(Pack({1, 3})));
}

TEST_F(ElasticBspStepTest, IsOneAtATimeAndNoneBeforeThereAreParameters) {
  EXPECT_FALSE(Begin({1, 1}).has_value());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(std::string(told_[0].message()),
              HasSubstr("rank 3 ends a step, or drains, while another"));
  step_.Receive(Pack({0, 0}));
  EXPECT_TRUE(Begin({1, 1}).has_value());
  EXPECT_FALSE(Begin({2, 2}).has_value());
  ASSERT_EQ(told_.size(), 2u) << "the other one is still under way";
  EXPECT_THAT(std::string(told_[1].message()), HasSubstr("has not ended"));
  step_.End(OkStatus());
  EXPECT_EQ(told_.size(), 3u);
}

TEST_F(ElasticBspStepTest, AnotherNumberOfParametersIsNamed) {
  step_.Receive(Pack({0, 0}));
  EXPECT_FALSE(Begin({1, 2, 3}).has_value());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(std::string(told_[0].message()),
              HasSubstr("rank 3 has 12 bytes of parameters, not 8"));
}

TEST_F(ElasticBspStepTest, AFailureEndsItOnceWithoutValues) {
  step_.Receive(Pack({0, 0}));
  ASSERT_TRUE(Begin({1, 1}).has_value());
  ASSERT_TRUE(step_.Receive(Pack({4, 5})));
  step_.End(InternalError("somebody has died"));
  step_.End(OkStatus());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(std::string(told_[0].message()), HasSubstr("somebody has died"));
  EXPECT_THAT(values_, ElementsAre());
  EXPECT_FALSE(step_.Receive(Pack({6, 6}))) << "it has ended";
}

TEST_F(ElasticBspStepTest, NoneBeginsAfterAFailure) {
  step_.Receive(Pack({0, 0}));
  errors_->Latch(InternalError("somebody has died"));
  EXPECT_THAT(std::string(step_.Check(Pack({1, 1})).message()), HasSubstr("somebody has died"));
  EXPECT_FALSE(Begin({1, 1}).has_value());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(std::string(told_[0].message()), HasSubstr("somebody has died"));
}

TEST_F(ElasticBspStepTest, ACallbackMayBeginTheNext) {
  step_.Receive(Pack({0, 0}));
  bool has_begun = false;
  ASSERT_TRUE(step_.Begin(Pack({1, 1}), [&](const Status&, const Payload&) {
    has_begun = Begin({2, 2}).has_value();
  }));
  step_.End(OkStatus());
  EXPECT_TRUE(has_begun);
}

TEST_F(ElasticBspStepTest, WhenAFailureMeetsItsBeginItEndsExactlyOnce) {
  for (int round = 0; round < 500; ++round) {
    const auto errors = std::make_shared<ErrorLatch>();
    ElasticBspStep step("rank 3", ElementType::kFloat32, 2 * sizeof(float), errors);
    step.Receive(Pack({0, 0}));
    std::atomic<int> ends{0};
    std::thread failure([&] {
      errors->Latch(InternalError("somebody has died"));
      step.End(errors->status());
    });
    step.Begin(Pack({1, 1}), [&](const Status& status, const Payload&) {
      EXPECT_FALSE(status.ok());
      ++ends;
    });
    failure.join();
    ASSERT_EQ(ends, 1);
  }
}

}  // namespace
}  // namespace trepak
