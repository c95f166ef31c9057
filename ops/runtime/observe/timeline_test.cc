#include "ops/runtime/observe/timeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace trepak {
namespace {

using std::chrono::microseconds;
using Clock = Timeline::Clock;

class TimelineTest : public testing::Test {
 protected:
  std::string Read() const {
    std::ifstream file(path_);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
  }

  static size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }

  void Open(int64_t first = 0, int64_t end = 1000) {
    ASSERT_TRUE(timeline_.Open(path_, 3, "rank 3 on \"h\"", "{\"rank\":3}", 0, first, end).ok());
  }

  void Add(const std::string& name) {
    const Clock::time_point begin(microseconds(1500));
    timeline_.Span(Timeline::Track::kSteps, name, begin, begin + microseconds(250), {{"step", 7}});
  }

  const std::string path_ = testing::TempDir() + "timeline_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
  Timeline timeline_;
};

TEST_F(TimelineTest, WritesWhatViewersRead) {
  Open();
  Add("compute");
  ASSERT_TRUE(timeline_.Close().ok());
  const std::string text = Read();
  EXPECT_EQ(text.front(), '[');
  EXPECT_EQ(text.substr(text.size() - 3), "\n]\n");
  EXPECT_NE(text.find("{\"ph\":\"X\",\"name\":\"compute\",\"ts\":1500.000,\"dur\":250.000,"
                      "\"args\":{\"step\":7},\"pid\":3,\"tid\":0}"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 3 on \\\"h\\\""), std::string::npos) << text;
}

TEST_F(TimelineTest, RowsAreNamedOnce) {
  Open();
  const Clock::time_point begin(microseconds(1500));
  for (const int row : {0, 2, 2}) {
    timeline_.Span(Timeline::Track::kRounds, "round", begin, begin, {{"round", 1}, {"group", 0}},
                   row);
  }
  ASSERT_TRUE(timeline_.Close().ok());
  const std::string text = Read();
  EXPECT_EQ(Count(text, "\"thread_name\""), 2u) << text;
  EXPECT_EQ(Count(text, "\"tid\":4,\"args\":{\"name\":\"rounds\"}}"), 1u) << text;
  EXPECT_EQ(Count(text, "\"tid\":6,\"args\":{\"name\":\"rounds 2\"}}"), 1u) << text;
  EXPECT_EQ(Count(text, "\"args\":{\"round\":1,\"group\":0},\"pid\":3,\"tid\":6}"), 2u) << text;
}

TEST_F(TimelineTest, NumbersAreCurves) {
  timeline_.Counter("bytes", Clock::time_point(microseconds(1)), 1);  // before it is open
  Open();
  timeline_.Counter("bytes", Clock::time_point(microseconds(1500)), 42);
  ASSERT_TRUE(timeline_.Close().ok());
  const std::string text = Read();
  EXPECT_EQ(Count(text, "\"C\""), 1u) << text;
  EXPECT_EQ(Count(text,
                  "{\"ph\":\"C\",\"name\":\"bytes\",\"ts\":1500.000,"
                  "\"args\":{\"value\":42},\"pid\":3}"),
            1u)
      << text;
}

TEST_F(TimelineTest, KeepsOnlyTheStepsOfItsWindow) {
  Open(2, 4);
  for (int step = 0; step < 6; ++step) {
    timeline_.BeginStep(step);
    EXPECT_EQ(timeline_.on(), step == 2 || step == 3);
    Add("step " + std::to_string(step));
  }
  ASSERT_TRUE(timeline_.Close().ok());
  EXPECT_EQ(Count(Read(), "\"X\""), 2u);
  EXPECT_EQ(Count(Read(), "step 2"), 1u);
  EXPECT_EQ(Count(Read(), "step 3"), 1u);
}

TEST_F(TimelineTest, ClosedTimelineKeepsNothing) {
  EXPECT_FALSE(timeline_.on());
  Add("before");
  timeline_.BeginStep(0);
  EXPECT_TRUE(timeline_.Close().ok());
  Open();
  ASSERT_TRUE(timeline_.Close().ok());
  Add("after");
  EXPECT_EQ(Count(Read(), "\"X\""), 0u);
}

TEST_F(TimelineTest, UnusableFolderIsAnError) {
  const Status status = timeline_.Open("/nonexistent/x.json", 1, "t", "{}", 0, 0, 1);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("rank 1: the timeline /nonexistent/x.json cannot be opened"),
            std::string_view::npos);
  EXPECT_FALSE(timeline_.on());
}

TEST_F(TimelineTest, FullDiskIsReportedAtTheEnd) {
  std::ofstream probe("/dev/full");
  if (!probe) GTEST_SKIP() << "no /dev/full";
  ASSERT_TRUE(timeline_.Open("/dev/full", 0, "t", "{}", 0, 0, 10).ok());
  Add("lost");
  const Status status = timeline_.Close();
  EXPECT_NE(status.message().find("cannot be written"), std::string_view::npos) << status;
}

TEST_F(TimelineTest, KilledProcessLeavesWhatWasWritten) {
  Open();
  for (int i = 0; i < 2000; ++i) Add("span");  // more than the buffer holds
  EXPECT_GT(Count(Read(), "\"X\""), 1000u);
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));  // the time between two flushes
  timeline_.BeginStep(1);
  EXPECT_EQ(Count(Read(), "\"X\""), 2000u);
}

TEST_F(TimelineTest, ManyThreadsMayAdd) {
  Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 500; ++i) {
        Add("span");
        timeline_.BeginStep(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(timeline_.Close().ok());
  EXPECT_EQ(Count(Read(), "\"X\""), 2000u);
}

}  // namespace
}  // namespace trepak
