#include "ops/runtime/rna/rna_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace trepak {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A rank of a job that exchanges parameters after rounds 1, 3, ...
class RnaInboxTest : public testing::Test {
 protected:
  static RnaRules Rules(bool aligned = false) {
    RnaRules rules;
    rules.elements = 1;
    rules.exchange.period = 2;
    rules.aligned = aligned;
    return rules;
  }

  static Status Ignore(MessageKind, uint64_t, uint8_t) { return OkStatus(); }

  void Write() { ASSERT_TRUE(contributor_.Write({Payload(), inbox_.GoOn(), 1, 0.1}, {}).ok()); }

  // A round begins and ends.
  void Run(uint64_t number, double contributors = 1) {
    contributor_.Start();
    End(number, contributor_.Take(), contributors);
  }

  void End(uint64_t number, const Contribution& mine, double contributors = 1) {
    RnaRound round;
    round.number = number;
    round.contributors = contributors;
    round.initiator = 5;
    contributor_.End(contributors != 0);
    inbox_.Put(round, mine);
    inbox_.Wake();
  }

  void Exchange(uint64_t after) {
    RnaRound outcome;
    outcome.number = after;
    outcome.is_exchange = true;
    inbox_.Put(outcome, {});
    inbox_.Wake();
  }

  RnaRound Read() {
    RnaRound round;
    EXPECT_TRUE(inbox_.Read(&round));
    return round;
  }

  // What becomes of who waits; its callback asks the inbox, whose lock must be free.
  using Outcome = std::shared_ptr<std::optional<Status>>;
  RnaInbox::Callback Into(const Outcome& outcome) {
    return [this, outcome](const Status& status) {
      inbox_.finished();
      *outcome = status;
    };
  }
  Outcome Await() {
    const auto outcome = std::make_shared<std::optional<Status>>();
    inbox_.Await(Into(outcome));
    return outcome;
  }
  Outcome Drain() {
    const auto outcome = std::make_shared<std::optional<Status>>();
    RnaInbox::Callback callback = Into(outcome);
    EXPECT_TRUE(inbox_.Drain(&callback));
    EXPECT_TRUE(contributor_.Drain().ok());
    return outcome;
  }
  void EndDrainAfter(uint64_t rounds) {
    inbox_.EndDrainAfter(rounds);
    inbox_.Wake();
  }

  const std::shared_ptr<ErrorLatch> errors_ = std::make_shared<ErrorLatch>();
  RnaContributor contributor_{Rules(), "rank 7", Ignore};
  RnaInbox inbox_{Rules(), &contributor_, errors_};
};

TEST_F(RnaInboxTest, RoundsAreReadInTheirOrder) {
  RnaRound round;
  EXPECT_FALSE(inbox_.Read(&round));
  Run(0, 0);
  Run(1);
  EXPECT_EQ(inbox_.finished(), 2u);
  EXPECT_EQ(Read().number, 0u);
  EXPECT_EQ(inbox_.GoOn(), 0u) << "a round of null gradients changes nothing";
  EXPECT_EQ(Read().number, 1u);
  EXPECT_EQ(inbox_.GoOn(), 1u);
}

TEST_F(RnaInboxTest, ARoundOfThePeriodLocksUntilItsOutcomeArrives) {
  Run(0);
  Run(1);
  Run(2);
  Read();
  EXPECT_FALSE(inbox_.locked());
  Read();
  EXPECT_EQ(inbox_.locked(), 1u);
  EXPECT_EQ(inbox_.finished(), 0u) << "round 2 is not to be read yet";
  EXPECT_EQ(inbox_.remaining(), 1u);
  EXPECT_THAT(inbox_.Missing(), HasSubstr("that rank 5 exchanges for its group after round 1"));
  EXPECT_TRUE(inbox_.NeedsCoordinator());
  Exchange(3);  // a later one's, of ranks that are further
  EXPECT_EQ(inbox_.finished(), 0u);
  Exchange(1);
  EXPECT_EQ(inbox_.finished(), 1u);
  EXPECT_TRUE(Read().is_exchange);
  EXPECT_FALSE(inbox_.locked());
  EXPECT_EQ(Read().number, 2u);
}

TEST_F(RnaInboxTest, AwaitWaitsWhileSomethingIsToCome) {
  EXPECT_TRUE(*Await()) << "nothing was written";
  Write();
  const Outcome first = Await();
  EXPECT_FALSE(*first);
  EXPECT_TRUE(inbox_.NeedsCoordinator());
  contributor_.Start();
  const Contribution mine = contributor_.Take();
  inbox_.Wake();
  EXPECT_FALSE(*first) << "the round has not ended";
  EXPECT_FALSE(inbox_.NeedsCoordinator()) << "which it does by itself";
  EXPECT_THAT(inbox_.Missing(), HasSubstr("round 0, which some rank does not take part in"));
  contributor_.End(true);
  inbox_.Wake();
  EXPECT_FALSE(*first) << "it is not there to be read";
  inbox_.Put({}, mine);
  inbox_.Wake();
  EXPECT_TRUE(*first && (*first)->ok());
  EXPECT_TRUE(*Await()) << "a round is there to be read";
}

TEST_F(RnaInboxTest, AwaitWaitsForTheOutcomeWhileParametersAreLocked) {
  Run(0);
  Run(1);
  Read();
  Read();
  const Outcome outcome = Await();
  EXPECT_FALSE(*outcome);
  Exchange(1);
  EXPECT_TRUE(*outcome);
}

TEST_F(RnaInboxTest, AnAlignedStepAwaitsTheRoundOfItsNumber) {
  RnaContributor contributor(Rules(true), "rank 7", Ignore);
  RnaInbox inbox(Rules(true), &contributor, errors_);
  inbox.Put({}, {});
  ASSERT_TRUE(contributor.Write({Payload(), 0, 1, 0.1}, {}).ok());
  bool late = false;
  inbox.Await([&](const Status&) { late = true; });
  EXPECT_TRUE(late) << "round 0 has ended before";
  ASSERT_TRUE(contributor.Write({Payload(), 0, 1, 0.1}, {}).ok());
  bool over = false;
  inbox.Await([&](const Status&) { over = true; });
  EXPECT_FALSE(over) << "round 0 can be read, and it is round 1 that matters";
  inbox.Put({}, {});
  inbox.Wake();
  EXPECT_TRUE(over);
}

TEST_F(RnaInboxTest, ADrainEndsWithItsLastRoundAndBoundsWhatIsRead) {
  Run(0);
  const Outcome drained = Drain();
  RnaInbox::Callback again = [](const Status&) {};
  EXPECT_FALSE(inbox_.Drain(&again));
  EXPECT_TRUE(again) << "it is the caller's still";
  EXPECT_THAT(inbox_.Missing(), HasSubstr("all ranks to flush their gradients"));
  EXPECT_TRUE(inbox_.NeedsCoordinator());
  EndDrainAfter(2);
  EXPECT_FALSE(inbox_.NeedsCoordinator());
  EXPECT_FALSE(*drained);
  Run(1);
  ASSERT_TRUE(*drained);
  EXPECT_TRUE((*drained)->ok());
  Run(2);  // other ranks have gone on
  EXPECT_EQ(inbox_.finished(), 2u);
  EXPECT_EQ(inbox_.remaining(), 2u);
  Read();
  EXPECT_EQ(inbox_.finished(), 1u);
  Write();  // not refused any more
  EXPECT_EQ(inbox_.finished(), 2u);
  EXPECT_EQ(inbox_.remaining(), 0u);
}

TEST_F(RnaInboxTest, AnErrorIsToldToAllThatWait) {
  Write();
  const Outcome awaiting = Await();
  const Outcome draining = Drain();
  errors_->Latch(UnavailableError("rank 3 was lost"));
  inbox_.Wake();
  for (const Outcome& outcome : {awaiting, draining}) {
    ASSERT_TRUE(*outcome);
    EXPECT_EQ((*outcome)->message(), "rank 3 was lost");
  }
}

TEST_F(RnaInboxTest, WhatIsMissedForTooLongIsSaid) {
  const auto before = RnaInbox::Clock::now();
  const auto missing_since_before = [&] { return inbox_.MissingSince(before - milliseconds(1)); };
  const auto missing = [&] { return inbox_.MissingSince(RnaInbox::Clock::now()); };
  EXPECT_EQ(missing(), "") << "nobody waits";
  Write();
  Await();
  EXPECT_EQ(missing_since_before(), "");
  EXPECT_EQ(missing(), "round 0, which too few ranks have gradients for");
  Run(0);
  EXPECT_EQ(missing(), "");
  Drain();
  EXPECT_EQ(missing_since_before(), "");
  EXPECT_THAT(missing(), HasSubstr("all ranks"));
  EndDrainAfter(2);
  EXPECT_THAT(missing(), HasSubstr("round 1"));
  Run(1);
  EXPECT_EQ(missing(), "");
  Read();
  Read();
  EXPECT_EQ(missing_since_before(), "");
  EXPECT_THAT(missing(), HasSubstr("the parameters"));
}

TEST_F(RnaInboxTest, RoundsAndWhatWasBroughtAreCounted) {
  Contribution mine;
  mine.gradients = 2;
  mine.staleness = 3;
  End(0, mine, 4);
  End(1, {}, 2);
  Exchange(1);
  const RnaInbox::Counters counters = inbox_.counters();
  EXPECT_EQ(counters.rounds, 2u);
  EXPECT_EQ(counters.contributed, 1u);
  EXPECT_EQ(counters.gradients, 2u);
  EXPECT_EQ(counters.staleness, 3u);
  EXPECT_EQ(counters.contributors, 6u);
}

}  // namespace
}  // namespace trepak
