#include "ops/runtime/dymem/step_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kLong(600'000);

class StepTurnsTest : public testing::Test {
 protected:
  std::shared_ptr<StepTurns> Make(int count, milliseconds patience = kLong) {
    return std::make_shared<StepTurns>(count, patience, &timer_);
  }

  StepTurns::Begin Notes(int turn) {
    return [this, turn](const Status& status) {
      (status.ok() ? begun_ : failed_).push_back(turn);
      why_ = status;
    };
  }

  TimerThread timer_;
  std::vector<int> begun_;
  std::vector<int> failed_;
  Status why_;
};

TEST_F(StepTurnsTest, WhoWaitsBeginsWhenTheTurnIsPassed) {
  const auto turns = Make(2);
  turns->Wait(1, Notes(1));
  turns->Wait(0, Notes(0));
  EXPECT_THAT(begun_, ElementsAre());
  turns->Pass(0);
  EXPECT_THAT(begun_, ElementsAre(0));
  turns->Pass(1);
  EXPECT_THAT(begun_, ElementsAre(0, 1));
  EXPECT_THAT(failed_, ElementsAre());
}

TEST_F(StepTurnsTest, WhoComesLaterThanItsTurnBeginsAtOnce) {
  const auto turns = Make(1);
  turns->Pass(0);
  turns->Wait(0, Notes(0));
  EXPECT_THAT(begun_, ElementsAre(0));
}

TEST_F(StepTurnsTest, OnePassIsEnough) {
  const auto turns = Make(1);
  turns->Wait(0, Notes(0));
  turns->Pass(0);
  turns->Pass(0);
  turns->Cancel(0);
  EXPECT_THAT(begun_, ElementsAre(0));
  EXPECT_THAT(failed_, ElementsAre());
}

TEST_F(StepTurnsTest, CancelledTurnsFailWhetherTheyWaitOrNot) {
  const auto turns = Make(2);
  turns->Wait(0, Notes(0));
  turns->Cancel(0);
  turns->Cancel(1);
  turns->Pass(1);
  turns->Wait(1, Notes(1));
  EXPECT_THAT(begun_, ElementsAre());
  EXPECT_THAT(failed_, ElementsAre(0, 1));
  EXPECT_EQ(why_.code(), StatusCode::kCancelled);
}

TEST_F(StepTurnsTest, WhoWaitsMayPassTheNextTurn) {
  const auto turns = Make(3);
  for (int turn = 0; turn < 2; ++turn) {
    turns->Wait(turn, [&, turn](const Status& status) {
      Notes(turn)(status);
      turns->Pass(turn + 1);
    });
  }
  turns->Wait(2, Notes(2));
  turns->Pass(0);
  EXPECT_THAT(begun_, ElementsAre(0, 1, 2));
}

TEST_F(StepTurnsTest, IfNothingGoesOnAllWhoWaitAreTold) {
  const auto turns = Make(4, milliseconds(20));
  std::promise<Status> first;
  std::promise<Status> last;
  std::promise<Status> later;
  const auto is_told = [](std::promise<Status>* told) {
    const Status status = told->get_future().get();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("20 ms"));
  };
  turns->Wait(0, [&](const Status& status) { first.set_value(status); });
  turns->Wait(2, [&](const Status& status) { last.set_value(status); });
  is_told(&first);
  is_told(&last);
  turns->Pass(1);
  turns->Wait(1, Notes(1));
  EXPECT_THAT(begun_, ElementsAre(1)) << "who came later";
  turns->Wait(3, [&](const Status& status) { later.set_value(status); });
  is_told(&later);
}

TEST_F(StepTurnsTest, PatienceBeginsAnewWithEachTurn) {
  constexpr int kCount = 20;
  constexpr milliseconds kPatience(2000);
  const auto turns = Make(kCount, kPatience);
  const auto begun = std::chrono::steady_clock::now();
  for (int turn = 0; turn < kCount; ++turn) {
    turns->Wait(turn, Notes(turn));
  }
  for (int turn = 0; turn < kCount; ++turn) {
    std::this_thread::sleep_for(kPatience / 10);
    turns->Pass(turn);
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begun, kPatience);
  EXPECT_EQ(begun_.size(), kCount);
  EXPECT_THAT(failed_, ElementsAre());
}

TEST_F(StepTurnsTest, AStepMayEndBeforeItsDeadline) {
  auto turns = Make(1, milliseconds(1));
  std::promise<void> has_ended;
  timer_.RunAt({}, [&] { has_ended.get_future().wait(); });  // however late this thread comes
  turns->Wait(0, Notes(0));
  turns->Pass(0);
  turns.reset();
  has_ended.set_value();
  std::promise<void> later;
  timer_.RunAt(std::chrono::steady_clock::now() + milliseconds(5), [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_THAT(failed_, ElementsAre());
}

TEST_F(StepTurnsTest, EachWaiterIsCalledOnceWhateverThreadsDo) {
  constexpr int kCount = 400;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto turns = Make(kCount);
    std::vector<std::atomic<int>> calls(kCount);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        std::vector<int> order(kCount);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(seed * 4 + thread));
        for (const int turn : order) {
          if (thread == 0) {
            turns->Wait(turn, [&calls, turn](const Status&) { ++calls[turn]; });
          } else if (thread == 1 && turn % 3 == 0) {
            turns->Cancel(turn);
          } else {
            turns->Pass(turn);
          }
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_TRUE(std::all_of(calls.begin(), calls.end(), [](const auto& of) { return of == 1; }))
        << seed;
  }
}

}  // namespace
}  // namespace trepak
