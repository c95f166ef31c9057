#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/rna/rna_fake_job.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Returns what a rank hears of another one's failure, when it has.
Status Heard(Job* job, uint32_t rank) {
  Status status;
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (status.ok() && std::chrono::steady_clock::now() < end) {
    status = job->Write(rank, 1.0f);
    std::this_thread::sleep_for(milliseconds(1));
  }
  return status;
}

TEST(RnaWorkerWaitingTest, AwaitWaitsForARoundIfThereIsSomethingToBring) {
  Job job(2, Rules(2, 2));
  EXPECT_TRUE(IsReady(job.Await(0))) << "nothing was written";
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::future<Status> waiting = job.Await(0);
  EXPECT_FALSE(IsReady(waiting, milliseconds(50)));
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  ASSERT_TRUE(IsReady(waiting));
  EXPECT_EQ(job.worker(0).finished(), 1u);
  EXPECT_TRUE(IsReady(job.Await(0))) << "a round is there to be read";
}

TEST(RnaWorkerWaitingTest, WhoWaitsTooLongFailsAndSaysForWhat) {
  Job job(2, Rules(2, 2), 100, milliseconds(200));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::future<Status> waiting = job.Await(0);
  ASSERT_TRUE(IsReady(waiting));
  const Status status = waiting.get();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("too few ranks have gradients"));
}

TEST(RnaWorkerWaitingTest, WhoEndsFirstLeavesOthersTheirLastRound) {
  Job job(2, Rules(2));
  job.Hold(1, true);
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  std::future<Status> first = job.Drain(0);
  std::future<Status> last = job.Drain(1);
  ASSERT_TRUE(IsReady(first));
  EXPECT_TRUE(first.get().ok());
  job.Leave(0, 0);
  EXPECT_FALSE(IsReady(last, milliseconds(500)));  // it has time to miss the coordinator
  job.Hold(1, false);
  ASSERT_TRUE(IsReady(last));
  const Status status = last.get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RnaWorkerWaitingTest, AnAlignedStepBelongsToTheRoundOfItsNumber) {
  RnaWorker::Rules aligned;
  aligned.aligned = true;
  aligned.combine = RnaContributions::Combine::kSum;
  Job job(2, Rules(2), aligned);
  for (uint64_t step = 0; step < 2; ++step) {  // rank 0 starts two rounds by itself
    ASSERT_TRUE(job.Write(0, 1.0f).ok());
    std::future<Status> waiting = job.Await(0);
    ASSERT_TRUE(IsReady(waiting));
    EXPECT_EQ(job.Read(0).number, step);
  }
  for (int step = 0; step < 2; ++step) {  // rank 1 comes late to both
    ASSERT_TRUE(job.Write(1, 1.0f).ok());
    EXPECT_TRUE(IsReady(job.Await(1)));
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(job.worker(1).counters().rounds, 2u);  // and starts none
  ASSERT_TRUE(job.Write(1, 1.0f).ok());
  ASSERT_TRUE(IsReady(job.Await(1)));
  EXPECT_EQ(ValueOf(job.Read(0)), 3.0f);  // of all that it has brought
  // After a drain all are at the same step.
  std::future<Status> first = job.Drain(0);
  std::future<Status> second = job.Drain(1);
  ASSERT_TRUE(IsReady(first) && IsReady(second));
  ASSERT_TRUE(job.Write(1, 2.0f).ok());
  ASSERT_TRUE(IsReady(job.Await(1)));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  EXPECT_TRUE(IsReady(job.Await(0)));
  EXPECT_EQ(ValueOf(job.Read(0)), 2.0f);
}

TEST(RnaWorkerWaitingTest, RanksThatNeverDrainAreNamed) {
  Job job(3, Rules(2), 100, milliseconds(200));
  std::future<Status> drain = job.Drain(1);
  ASSERT_TRUE(IsReady(drain));
  EXPECT_THAT(std::string(drain.get().message()), HasSubstr("for rank 0, rank 2 to come to"));
}

TEST(RnaWorkerWaitingTest, ALostRankEndsWhatOthersWaitFor) {
  Job job(3, Rules(3, 3));
  ASSERT_TRUE(job.Write(0, 1.0f).ok());
  std::future<Status> waiting = job.Await(0);
  job.network.Cut("worker 2");
  ASSERT_TRUE(IsReady(waiting));
  EXPECT_THAT(std::string(waiting.get().message()), HasSubstr("rank 2"));
  EXPECT_THAT(std::string(Heard(&job, 1).message()), HasSubstr("rank 2"));
}

TEST(RnaWorkerWaitingTest, WhoStepsOnWithoutRoundsFailsInTheEnd) {
  constexpr milliseconds kShort{200};  // longer than a busy machine has it stand still
  Job job(3, Rules(3, 3), 100, kShort);
  Status status;
  const auto begin = std::chrono::steady_clock::now();
  while (status.ok() && std::chrono::steady_clock::now() - begin < kDeadline) {
    status = job.Write(0, 1.0f);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 10 * kShort);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("round 0, which too few ranks"));
  EXPECT_THAT(std::string(Heard(&job, 1).message()), HasSubstr("rank 0: it has stepped on"));
}

TEST(RnaWorkerWaitingTest, WhoPausesBetweenStepsDoesNotFail) {
  constexpr milliseconds kShort{30};
  Job job(3, Rules(3, 3), 100, kShort);
  for (int pause = 0; pause < 20; ++pause) {  // e.g. to evaluate
    std::this_thread::sleep_for(kShort);
    const Status paused = job.Write(1, 1.0f);
    EXPECT_TRUE(paused.ok()) << paused;
  }
}

}  // namespace
}  // namespace trepak
