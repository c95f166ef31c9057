#include "ops/runtime/observe/step_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/net/undisturbed.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;

class StepProbeTest : public testing::Test {
 protected:
  void Step(milliseconds compute, milliseconds reduce) {
    std::this_thread::sleep_for(compute);
    std::this_thread::sleep_for(probe_.Computed());
    probe_.Ready();
    std::this_thread::sleep_for(reduce);
    probe_.Done();
  }

  void Emulate(milliseconds time) {
    std::promise<void> done;
    stream_.Enqueue(time, [&] { done.set_value(); });
    done.get_future().wait();
  }

  TimerThread timer_;
  EmulatedStream stream_{timer_};
  Injection injection_;
  Timeline timeline_;
  StepProbe probe_{injection_, stream_, timeline_};
};

TEST_F(StepProbeTest, RecordsFollowEachOther) {
  for (int i = 0; i < 3; ++i) Step(milliseconds(10), milliseconds(5));
  const auto records = probe_.Drain();
  ASSERT_EQ(records.size(), 3u);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].step, static_cast<int64_t>(i));
    EXPECT_GE(records[i].done - records[i].ready, milliseconds(5));
    if (i > 0) {
      EXPECT_EQ(records[i].begin, records[i - 1].done);
      EXPECT_GE(records[i].ready - records[i].begin, milliseconds(10));
    }
  }
  EXPECT_EQ(records[0].begin, records[0].ready) << "start-up is not computing";
  EXPECT_TRUE(probe_.Drain().empty());
}

TEST_F(StepProbeTest, TimelineTellsStepsAtOwnPaceApart) {
  const std::string path = testing::TempDir() + "step_probe_timeline.json";
  ASSERT_TRUE(timeline_.Open(path, 0, "t", "{}", 0, 0, 10).ok());
  probe_.Ready();
  probe_.Done();
  probe_.Ready();
  probe_.Done(true);
  const auto records = probe_.Drain();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_FALSE(records[0].at_own_pace);
  EXPECT_TRUE(records[1].at_own_pace);
  ASSERT_TRUE(timeline_.Close().ok());
  std::ifstream file(path);
  std::vector<std::string> endings;
  for (std::string line; std::getline(file, line);) {
    for (const char* name : {"synchronize", "hand over"}) {
      if (line.find(name) != std::string::npos) {
        endings.push_back(name + line.substr(line.find("\"step\""), 8));
      }
    }
  }
  EXPECT_EQ(endings, (std::vector<std::string>{"synchronize\"step\":0", "hand over\"step\":1"}));
}

TEST_F(StepProbeTest, SlowRankWaitsInProportion) {
  Step(milliseconds(1), milliseconds(1));
  InjectionOptions options;
  options.slow = 3;
  injection_.Configure(options);
  constexpr double kLimit = 200;  // milliseconds; 60 if the sleep takes no longer than it should
  const double pause = Undisturbed(kLimit, [&] {
    Step(milliseconds(1), milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));
    return std::chrono::duration<double, std::milli>(probe_.Computed()).count();
  });
  EXPECT_GE(pause, 40);
  EXPECT_LT(pause, kLimit);
}

TEST_F(StepProbeTest, EmulatedTimeIsNotSlowedTwice) {
  Step(milliseconds(1), milliseconds(1));
  InjectionOptions options;
  options.slow = 3;
  injection_.Configure(options);
  constexpr double kLimit = 150;  // milliseconds; 600 if it were slowed twice
  const double pause = Undisturbed(kLimit, [&] {
    Step(milliseconds(1), milliseconds(1));
    Emulate(milliseconds(300));
    return std::chrono::duration<double, std::milli>(probe_.Computed()).count();
  });
  EXPECT_LT(pause, kLimit);
}

TEST_F(StepProbeTest, DelayIsWaitedForOnce) {
  InjectionOptions options;
  options.delays = {{DelayRule::Kind::kProbability, 0, 0.25, 1.0}};
  injection_.Configure(options);
  EXPECT_EQ(probe_.Computed(), milliseconds(250));
  EXPECT_EQ(probe_.Computed(), milliseconds(0));
  probe_.Ready();
  probe_.Done();
  EXPECT_GE(probe_.Computed(), milliseconds(250));
}

TEST_F(StepProbeTest, OldestRecordsGoFirst) {
  for (size_t i = 0; i < StepProbe::kMostRecords + 10; ++i) {
    probe_.Ready();
    probe_.Done();
  }
  const auto records = probe_.Drain();
  ASSERT_EQ(records.size(), StepProbe::kMostRecords);
  EXPECT_EQ(records.front().step, 10);
}

}  // namespace
}  // namespace trepak
