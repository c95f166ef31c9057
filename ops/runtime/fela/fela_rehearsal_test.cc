#include "ops/runtime/fela/fela_rehearsal.h"

#include <gtest/gtest.h>

namespace trepak {
namespace {

// Two workers with two tokens of each stage each: one second for each of their samples.
FelaRules TwoWorkers() {
  FelaRules rules;
  rules.batches = {4, 4};
  rules.threshold = 2;
  rules.weights = {1, 1};
  return rules;
}

FelaPace APace() {
  FelaPace pace;
  pace.fixed = {0, 0, 0};
  pace.each = {1, 1, 1};
  return pace;
}

TEST(FelaRehearsalTest, TakesTheTimeOfItsTokens) {
  FelaRehearsal found;
  ASSERT_TRUE(Rehearse(TwoWorkers(), APace(), &found).ok());
  EXPECT_DOUBLE_EQ(found.seconds, 12);  // each worker: two tokens of two samples in three stages
  EXPECT_EQ(found.requests, 2U + 2U + 12U);
  EXPECT_EQ(found.counters.tokens, 12U);
  EXPECT_GT(found.busy_seconds, 0);
  EXPECT_GE(found.busy_seconds, found.worst_seconds);
}

TEST(FelaRehearsalTest, OthersTrainWhatASleeperDoesNot) {
  FelaPace pace = APace();
  pace.delays = {1000, 0};
  FelaRehearsal found;
  ASSERT_TRUE(Rehearse(TwoWorkers(), pace, &found).ok());
  EXPECT_DOUBLE_EQ(found.seconds, 24);
  EXPECT_EQ(found.counters.helped, 2U);  // what comes of these two is the helper's own
}

TEST(FelaRehearsalTest, WrongPacesAreNamed) {
  FelaPace pace = APace();
  pace.each.pop_back();
  FelaRehearsal found;
  EXPECT_NE(Rehearse(TwoWorkers(), pace, &found).message().find("3 stages"), std::string::npos);
  pace = APace();
  pace.delays = {1};
  EXPECT_NE(Rehearse(TwoWorkers(), pace, &found).message().find("delay"), std::string::npos);
}

}  // namespace
}  // namespace trepak
