#include "ops/runtime/rna/rna_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "ops/runtime/parameters/fake_parameters.h"

namespace trepak {
namespace {

using testing::HasSubstr;

Payload Number(float value) { return Payload::Copy(&value, sizeof(value)); }

float NumberIn(const Payload& payload) { return *static_cast<const float*>(payload.data()); }

RnaRules OneNumber() {
  RnaRules rules;
  rules.elements = 1;
  return rules;
}

RnaRound RoundOf(uint64_t samples, bool is_exchange = false, float sum = 0) {
  RnaRound round;
  round.samples = samples;
  round.is_exchange = is_exchange;
  round.sum = Number(sum);
  return round;
}

TEST(RnaExchangeTest, AGroupChangesTheJobsByWhatItHasDoneSinceTheLastExchange) {
  const auto global = std::make_shared<SharedParameters>(2);
  RnaExchange exchange(OneNumber(), "rank 7", global);
  exchange.Begin(Number(10), 1000);
  uint64_t samples = 0;
  float parameters = 0;
  const auto changed = [&](const Status&, const Payload& values, uint64_t total) {
    parameters = NumberIn(values);
    samples = total;
  };
  exchange.Apply(RoundOf(32));
  exchange.Apply(RoundOf(16));
  exchange.Change(Number(14), changed);
  EXPECT_EQ(parameters, 2.0f) << "half of the job has moved by 4";
  EXPECT_EQ(samples, 48u);
  exchange.Apply(RoundOf(100, true, 20));
  exchange.Change(Number(26), changed);
  EXPECT_EQ(parameters, 2.0f + 3.0f) << "since what was adopted";
  EXPECT_EQ(samples, 48u) << "of no further round";
}

TEST(RnaExchangeTest, TheOutcomeAndOthersSamplesAreBroughtOnce) {
  RnaExchange exchange(OneNumber(), "rank 7", nullptr);
  exchange.Begin(Number(10), 1000);
  EXPECT_EQ(exchange.TakeSamples(), 0u) << "what was there before is nobody's news";
  exchange.Apply(RoundOf(48));
  exchange.Keep(Number(20), 1148);
  Contribution brought = exchange.Take();
  EXPECT_EQ(brought.gradients, 0u);
  EXPECT_EQ(brought.samples, 100u);
  float sum = 0;
  brought.CombineInto(ElementType::kFloat32, sizeof(float), &sum);
  EXPECT_EQ(sum, 20.0f);
  EXPECT_TRUE(exchange.Take().parts.empty());
  EXPECT_EQ(exchange.Take().samples, 0u);
  exchange.Apply(RoundOf(100, true, 20));
  exchange.Begin(Number(30), 1155);
  EXPECT_EQ(exchange.TakeSamples(), 7u);
  EXPECT_EQ(exchange.TakeSamples(), 0u);
}

TEST(RnaExchangeTest, WhatCanNotBeExchangedIsExplained) {
  RnaExchange exchange(OneNumber(), "rank 7", nullptr);
  EXPECT_THAT(std::string(exchange.Check(Number(1)).message()),
              HasSubstr("or before it has fetched any"));
  exchange.Begin(Number(10), 0);
  EXPECT_TRUE(exchange.Check(Number(1)).ok());
  EXPECT_THAT(std::string(exchange.Check(Payload::Allocate(8)).message()),
              HasSubstr("rank 7 exchanges 8 bytes of parameters, not 4"));
  EXPECT_EQ(exchange.Check(Number(std::numeric_limits<float>::infinity())).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trepak
