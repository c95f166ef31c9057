#include "ops/runtime/dymem/allocation_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// "+node" and "-node", in order.
std::vector<std::string> Told(const AllocationTrace& trace) {
  std::vector<std::string> told;
  for (const AllocationTrace::Event& event : trace.events) {
    told.push_back((event.is_free ? "-" : "+") + trace.blocks[event.block].node);
  }
  return told;
}

TEST(AllocationRecorderTest, WritesDownOneStep) {
  AllocationRecorder recorder;
  char memory[4];
  recorder.Allocated(&memory[0], "weights", 100, false);
  recorder.Allocated(&memory[1], "earlier", 50, false);
  recorder.Swapped(&memory[0], "earlier/trepak_0");
  recorder.Freed(&memory[1]);
  recorder.Begin();
  recorder.Allocated(&memory[1], "conv", 30, true);
  recorder.Allocated(&memory[2], "conv", 20, false);
  recorder.Freed(&memory[1]);
  recorder.Allocated(&memory[1], "relu", 10, false);  // where conv's scratch was
  recorder.Swapped(&memory[2], "conv/trepak_0");
  recorder.Swapped(&memory[2], "reshape/trepak_0");
  recorder.Swapped(&memory[3], "who/trepak_0");
  recorder.Freed(&memory[3]);
  recorder.Freed(&memory[0]);
  const AllocationTrace trace = recorder.End(8);

  EXPECT_EQ(trace.batch, 8);
  EXPECT_EQ(trace.before, 1);
  EXPECT_THAT(Told(trace), ElementsAre("+conv", "+conv", "-conv", "+relu", "-weights"));
  ASSERT_EQ(trace.blocks.size(), 4U);
  EXPECT_EQ(trace.events[2].block, 1) << "the scratch was freed";
  EXPECT_EQ(trace.blocks[0].bytes, 100U);
  EXPECT_THAT(trace.blocks[0].swapped, ElementsAre());
  EXPECT_TRUE(trace.blocks[1].is_scratch);
  EXPECT_FALSE(trace.blocks[2].is_scratch);
  EXPECT_EQ(trace.blocks[2].bytes, 20U);
  EXPECT_THAT(trace.blocks[2].swapped, ElementsAre("conv/trepak_0", "reshape/trepak_0"));
}

TEST(AllocationRecorderTest, TheNextStepBeginsWithWhatLives) {
  AllocationRecorder recorder;
  char memory[3];
  recorder.Begin();
  recorder.Allocated(&memory[0], "slot", 10, false);
  recorder.Allocated(&memory[1], "gone", 10, false);
  recorder.Freed(&memory[1]);
  EXPECT_EQ(recorder.End(1).before, 0);
  recorder.Allocated(&memory[1], "between", 7, false);
  EXPECT_THAT(Told(recorder.End(1)), ElementsAre());
  recorder.Begin();
  recorder.Allocated(&memory[2], "new", 5, false);
  recorder.Freed(&memory[1]);
  recorder.Freed(&memory[0]);
  const AllocationTrace trace = recorder.End(2);
  EXPECT_EQ(trace.before, 2);
  EXPECT_THAT(Told(trace), ElementsAre("+new", "-between", "-slot"));
}

TEST(AllocationRecorderTest, WhatLivesKeepsTheOrderInWhichItCame) {
  constexpr size_t kBlocks = 100;
  AllocationRecorder recorder;
  char memory[kBlocks];
  for (size_t block = 0; block < kBlocks; ++block) {
    recorder.Allocated(&memory[block * 37 % kBlocks], "", block, false);
  }
  recorder.Freed(&memory[0]);
  for (int step = 0; step < 2; ++step) {
    recorder.Begin();
    const AllocationTrace trace = recorder.End(1);
    ASSERT_EQ(trace.before, kBlocks - 1);
    for (size_t block = 0; block + 1 < kBlocks; ++block) {
      EXPECT_EQ(trace.blocks[block].bytes, block + 1);
    }
  }
}

TEST(AllocationRecorderTest, ThreadsMayAllocateAtOnce) {
  constexpr int kThreads = 3;
  constexpr int kBlocks = 2000;
  AllocationRecorder recorder;
  std::vector<std::vector<char>> memory(kThreads, std::vector<char>(kBlocks));
  recorder.Begin();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int block = 0; block < kBlocks; ++block) {
        char* const at = &memory[thread][block];
        recorder.Allocated(at, std::to_string(thread), block, false);
        recorder.Swapped(at, std::to_string(block));
        if (block % 2 == 0) {
          recorder.Freed(at);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const AllocationTrace trace = recorder.End(1);
  EXPECT_EQ(trace.events.size(), kThreads * kBlocks * 3U / 2);
  std::vector<int> state(trace.blocks.size());
  std::vector<size_t> next(kThreads);
  for (const AllocationTrace::Event& event : trace.events) {
    const AllocationTrace::Block& block = trace.blocks[event.block];
    ASSERT_EQ(state[event.block]++, event.is_free ? 1 : 0);
    if (!event.is_free) {
      ASSERT_EQ(block.bytes, next[std::stoi(block.node)]++) << "a thread's keep their order";
      ASSERT_THAT(block.swapped, ElementsAre(std::to_string(block.bytes)));
    }
  }
  recorder.Begin();
  EXPECT_EQ(recorder.End(1).before, kThreads * kBlocks / 2);
}

using Blocks = std::vector<AllocationTrace::Block>;

AllocationTrace TraceOf(int64_t batch, const Blocks& blocks, int before = 0) {
  AllocationTrace trace;
  trace.batch = batch;
  trace.blocks = blocks;
  trace.before = before;
  for (int block = before; block < static_cast<int>(blocks.size()); ++block) {
    trace.events.push_back({block, false});
  }
  return trace;
}

std::vector<size_t> BytesOf(const AllocationTrace& trace) {
  std::vector<size_t> bytes;
  for (const AllocationTrace::Block& block : trace.blocks) {
    bytes.push_back(block.bytes);
  }
  return bytes;
}

TEST(ExtrapolateTest, SizesAreLines) {
  const AllocationTrace small = TraceOf(4, {{"a", 400, false, {}}, {"b", 70, false, {}}});
  AllocationTrace large = TraceOf(8, {{"a", 800, false, {"a/trepak_0"}}, {"b", 70, false, {}}});
  large.events.push_back({0, true});
  AllocationTrace made;
  for (const int64_t batch : {2, 4, 6, 8, 64}) {
    ASSERT_TRUE(Extrapolate(small, large, batch, &made).ok());
    EXPECT_EQ(made.batch, batch);
    EXPECT_THAT(BytesOf(made), ElementsAre(static_cast<size_t>(100 * batch), 70));
  }
  EXPECT_THAT(made.blocks[0].swapped, ElementsAre("a/trepak_0"));
  EXPECT_THAT(Told(made), ElementsAre("+a", "+b", "-a"));
}

TEST(ExtrapolateTest, TheBatchesThatWereTracedAreExact) {
  for (int64_t between = 1; between < 60; ++between) {
    for (size_t grown = 0; grown < 200; ++grown) {
      AllocationTrace made;
      ASSERT_TRUE(Extrapolate(TraceOf(3, {{"a", 5, false, {}}}),
                              TraceOf(3 + between, {{"a", 5 + grown, false, {}}}), 3 + between,
                              &made)
                      .ok());
      ASSERT_THAT(BytesOf(made), ElementsAre(5 + grown)) << between;
    }
  }
}

TEST(ExtrapolateTest, NoSizeIsNegative) {
  AllocationTrace made;
  ASSERT_TRUE(Extrapolate(TraceOf(10, {{"a", 100, false, {}}}),
                          TraceOf(11, {{"a", 200, false, {}}}), 2, &made)
                  .ok());
  EXPECT_THAT(BytesOf(made), ElementsAre(0));
}

TEST(ExtrapolateTest, BlocksAreThoseOfTheSameTurn) {
  // In the large step, "b" has its turn first, and scratch counts for itself.
  const AllocationTrace small = TraceOf(
      1, {{"a", 10, false, {}}, {"a", 1, true, {}}, {"a", 20, false, {}}, {"b", 5, false, {}}});
  const AllocationTrace large = TraceOf(
      2, {{"b", 6, false, {}}, {"a", 2, true, {}}, {"a", 20, false, {}}, {"a", 40, false, {}}});
  AllocationTrace made;
  ASSERT_TRUE(Extrapolate(small, large, 3, &made).ok());
  EXPECT_THAT(BytesOf(made), ElementsAre(7, 3, 30, 60));
}

TEST(ExtrapolateTest, WhatWasThereBeforeIsNobodysTurn) {
  // An earlier step has left a block of "a" in the one trace, and another one in the other.
  const AllocationTrace small = TraceOf(1, {{"w", 7, false, {}}, {"a", 10, false, {}}}, 1);
  const AllocationTrace large =
      TraceOf(2, {{"w", 7, false, {}}, {"a", 9, false, {}}, {"a", 20, false, {}}}, 2);
  AllocationTrace made;
  ASSERT_TRUE(Extrapolate(small, large, 3, &made).ok());
  EXPECT_THAT(BytesOf(made), ElementsAre(7, 9, 30));
  EXPECT_EQ(made.before, 2);
  const AllocationTrace other = TraceOf(1, {{"a", 7, false, {}}, {"a", 10, false, {}}}, 1);
  ASSERT_TRUE(Extrapolate(other, large, 3, &made).ok());
  EXPECT_THAT(BytesOf(made), ElementsAre(7, 9, 30));
}

TEST(ExtrapolateTest, WhatHasNoCounterpartKeepsItsSize) {
  const AllocationTrace small = TraceOf(1, {{"a", 750, false, {}}});
  AllocationTrace made;
  ASSERT_TRUE(
      Extrapolate(small, TraceOf(2, {{"a", 1500, false, {}}, {"b", 100, false, {}}}), 3, &made)
          .ok());
  EXPECT_THAT(BytesOf(made), ElementsAre(2250, 100)) << "a sixteenth is let pass";
  const Status status =
      Extrapolate(small, TraceOf(2, {{"a", 1500, false, {}}, {"b", 110, false, {}}}), 3, &made);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 1610 bytes, 110 "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("a batch of 2"));
}

TEST(ExtrapolateTest, NeedsTwoBatches) {
  AllocationTrace made;
  for (const int64_t larger : {3, 4}) {
    const Status status = Extrapolate(TraceOf(larger, {}), TraceOf(3, {}), 5, &made);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the smaller one first"));
  }
}

}  // namespace
}  // namespace trepak
