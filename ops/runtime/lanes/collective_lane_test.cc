#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/runtime/lanes/collective_lane_fake_job.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

bool IsReady(const std::future<Outcome>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(CollectiveLaneTest, SumsAndAveragesWhatAllRanksHavePushed) {
  Job job(2, {5, 9});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.Push(rank, 0, static_cast<float>(rank + 1)).ok());
    ASSERT_TRUE(job.Push(rank, 1, static_cast<float>(rank + 1), 2.0, true).ok());
  }
  auto early = job.Deliver(0, 0);
  EXPECT_FALSE(IsReady(early));
  job.RunAll();
  EXPECT_EQ(early.get().values, std::vector<float>(5, 3.0F));
  EXPECT_EQ(job.Deliver(1, 0).get().values, std::vector<float>(5, 3.0F));
  EXPECT_EQ(job.Deliver(0, 1).get().values, std::vector<float>(9, 3.0F));
}

TEST(CollectiveLaneTest, NothingIsStartedBeforeAGradientIsThere) {
  Job job(2, {5});
  EXPECT_EQ(job.collectives.started(), 0U);
  ASSERT_TRUE(job.Push(0, 0, 1).ok());
  job.RunAll();
  EXPECT_EQ(job.collectives.started(), 1U);  // rank 0 asks, and rank 1 has nothing to say
  ASSERT_TRUE(job.Push(1, 0, 1).ok());
  job.RunAll();
  EXPECT_EQ(job.collectives.started(), 0U);
  EXPECT_TRUE(IsReady(job.Deliver(0, 0)));
}

TEST(CollectiveLaneTest, FirstLayersOvertakeWhatIsNotUnderWay) {
  Job job(2, {4, 40});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.Push(rank, 1, 1).ok());  // ten pieces
  }
  while (job.collectives.order().empty()) {
    ASSERT_TRUE(job.collectives.Run(&job.random));
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.Push(rank, 0, 1).ok());
  }
  job.RunAll();
  const std::vector<std::string> order = job.collectives.order();
  ASSERT_EQ(order.size(), 11U);
  const auto place = std::find(order.begin(), order.end(), "lane.0.0") - order.begin();
  EXPECT_LE(place, 3 * 3) << "two windows were under way, and one turn knew nothing of it";
  EXPECT_TRUE(IsReady(job.Deliver(0, 1)));
}

TEST(CollectiveLaneTest, UrgentGradientsWaitForNoWindow) {
  Job job(2, {4, 6, 2, 400}, 41);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.Push(rank, 3, 1).ok());
  }
  while (job.collectives.order().empty()) {
    ASSERT_TRUE(job.collectives.Run(&job.random));
  }
  const size_t before = job.collectives.started();
  ASSERT_TRUE(job.Push(0, 2, 1).ok());  // ends beyond the 41 bytes
  EXPECT_EQ(job.collectives.started(), before);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.Push(rank, 1, 1).ok());
    EXPECT_EQ(job.collectives.started(), before + 2) << "two pieces, which both ranks have";
  }
  job.RunAll();
  EXPECT_EQ(job.Deliver(0, 1).get().values, std::vector<float>(6, 2.0F));
}

TEST(CollectiveLaneTest, OthersGoOnWithoutARankThatHasJoined) {
  Job job(3, {5, 90});
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.Push(rank, 0, 1).ok());
  }
  job.RunAll();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(IsReady(job.Deliver(rank, 0)));
  }
  job.collectives.Join();  // rank 0
  for (uint32_t rank = 1; rank < 3; ++rank) {
    ASSERT_TRUE(job.Push(rank, 0, 1).ok());
    ASSERT_TRUE(job.Push(rank, 1, 3, 1.0, true).ok());
  }
  job.RunAll();
  EXPECT_EQ(job.Deliver(1, 0).get().values, std::vector<float>(5, 2.0F));
  EXPECT_EQ(job.Deliver(2, 1).get().values, std::vector<float>(90, 2.0F));
}

TEST(CollectiveLaneTest, TwoWindowsAreUnderWayAtMost) {
  Job job(3, {400});
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.Push(rank, 0, 1).ok());
  }
  do {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_LE(job.collectives.under_way(rank), 2 * (kWindow + kPiece));
    }
  } while (job.collectives.Run(&job.random));
  EXPECT_EQ(job.collectives.order().size(), 100U);
}

// Ranks push in orders of their own, and go on to the next step when they have everything.
TEST(CollectiveLaneTest, NoOrderOfPushesBlocks) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto ranks = static_cast<uint32_t>(2 + seed % 3);
    std::vector<size_t> elements(1 + random() % 8);
    for (size_t& count : elements) {
      count = random() % 30;
    }
    Job job(ranks, elements, random() % 2 * (random() % 400));
    std::vector<std::vector<size_t>> left(ranks);
    std::vector<int> steps(ranks, 0);
    std::vector<std::vector<std::future<Outcome>>> results(ranks);
    constexpr int kSteps = 4;
    const auto next_step = [&](uint32_t rank) {
      for (size_t place = 0; place < elements.size(); ++place) {
        left[rank].push_back(place);
      }
      std::shuffle(left[rank].begin(), left[rank].end(), random);
    };
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      next_step(rank);
    }
    int idle = 0;
    while (*std::min_element(steps.begin(), steps.end()) < kSteps) {
      ASSERT_LT(++idle, 100'000) << "seed " << seed << ": nothing goes on";
      const auto rank = static_cast<uint32_t>(random() % ranks);
      if (random() % 2 == 0) {
        job.collectives.Run(&random);
      } else if (!left[rank].empty()) {
        const size_t place = left[rank].back();
        left[rank].pop_back();
        ASSERT_TRUE(job.Push(rank, place, static_cast<float>(steps[rank] + 1)).ok());
        if (left[rank].empty()) {
          for (size_t each = 0; each < elements.size(); ++each) {
            results[rank].push_back(job.Deliver(rank, each));
          }
        }
      } else if (!results[rank].empty() &&
                 std::all_of(results[rank].begin(), results[rank].end(), IsReady)) {
        for (size_t each = 0; each < elements.size(); ++each) {
          const float expected = static_cast<float>(ranks) * static_cast<float>(steps[rank] + 1);
          ASSERT_EQ(results[rank][each].get().values, std::vector<float>(elements[each], expected));
        }
        results[rank].clear();
        if (++steps[rank] < kSteps) {
          next_step(rank);
        }
      }
    }
    EXPECT_EQ(job.collectives.started(), 0U) << "nothing is left under way";
  }
}

TEST(CollectiveLaneTest, FailedCollectiveReachesWhoWaitsAndWhoComesLater) {
  Job job(2, {5});
  ASSERT_TRUE(job.Push(0, 0, 1).ok());
  ASSERT_TRUE(job.Push(1, 0, 1).ok());
  auto result = job.Deliver(0, 0);
  job.collectives.Break(UnavailableError("rank 1 has left"));
  job.RunAll();
  EXPECT_THAT(std::string(result.get().status.message()), HasSubstr("rank 1 has left"));
  EXPECT_THAT(std::string(job.Deliver(0, 0).get().status.message()), HasSubstr("rank 1 has left"));
  EXPECT_FALSE(job.Push(0, 0, 1).ok());
}

TEST(CollectiveLaneTest, OnlyWhatIsPendingIsLostWhenALaneEnds) {
  Job job(2, {5, 3});
  ASSERT_TRUE(job.Push(0, 0, 1).ok());
  job.lanes[0]->Fail(UnavailableError("rank 1 has left"));
  std::vector<bool> pending;
  EXPECT_THAT(std::string(job.lanes[0]->Pending({Job::Key(0)}, &pending).message()),
              HasSubstr("rank 1 has left"));
  ASSERT_TRUE(job.lanes[0]->Pending({Job::Key(1)}, &pending).ok());
  EXPECT_THAT(pending, ElementsAre(false));
}

TEST(CollectiveLaneTest, StepsHaveAnEndAndGradientsASize) {
  Job job(2, {5, 3});
  std::vector<bool> pending;
  ASSERT_TRUE(job.lanes[0]->Pending({Job::Key(0), Job::Key(1)}, &pending).ok());
  EXPECT_THAT(pending, ElementsAre(false, false));
  ASSERT_TRUE(job.Push(0, 0, 1).ok());
  EXPECT_THAT(std::string(job.lanes[0]->Pending({Job::Key(0)}, &pending).message()),
              HasSubstr("interrupted"));
  ASSERT_TRUE(job.lanes[0]->CommitStep({Job::Key(0)}).ok());
  ASSERT_TRUE(job.lanes[0]->Pending({Job::Key(0), Job::Key(1)}, &pending).ok());
  EXPECT_THAT(pending, ElementsAre(true, false));
  EXPECT_THAT(std::string(job.Push(0, 0, 1).message()), HasSubstr("pushed again"));
  EXPECT_FALSE(job.lanes[0]->PushGradient(7, 0, Floats(1, 0), 1, false, true).ok());
  EXPECT_THAT(
      std::string(
          job.lanes[0]->PushGradient(Job::Key(1), 0, Floats(9, 0), 1, false, true).message()),
      HasSubstr("36 bytes"));
  auto waiting = job.Deliver(0, 0);
  job.lanes[0]->CancelDeliver(Job::Key(0));
  EXPECT_EQ(waiting.get().status.code(), StatusCode::kCancelled);
}

TEST(CollectiveLaneTest, ThreadsMayPushWhileSumsRun) {
  constexpr int kSteps = 50;
  Job job(2, {30, 4, 0, 17}, 140);
  std::atomic<bool> over{false};
  std::thread runner([&] {
    std::mt19937 random(3);
    while (!over) {
      job.collectives.Run(&random);
    }
  });
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&job, rank] {
      for (int step = 1; step <= kSteps; ++step) {
        for (size_t place = job.elements_.size(); place-- > 0;) {
          EXPECT_TRUE(job.Push(rank, place, static_cast<float>(step)).ok());
        }
        for (size_t place = 0; place < job.elements_.size(); ++place) {
          const std::vector<float> expected(job.elements_[place], 2.0F * static_cast<float>(step));
          EXPECT_EQ(job.Deliver(rank, place).get().values, expected);
        }
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  over = true;
  runner.join();
}

}  // namespace
}  // namespace trepak
