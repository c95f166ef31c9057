#include "ops/runtime/chicle/chunk_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/chicle/chunk_testing.h"

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

double* AlphaOf(const Chunk& chunk) {
  return static_cast<double*>(chunk.arrays()[chunk.Find("alpha")].values);
}

std::vector<uint64_t> IdsOf(const ChunkStore& store) {
  std::vector<uint64_t> ids;
  for (const auto& chunk : store.chunks()) {
    ids.push_back(chunk->id());
  }
  return ids;
}

TEST(ChunkStoreTest, ChunksComeAndGoBetweenIterationsOnly) {
  ChunkStore store;
  const auto second = RandomChunk(2, 2);
  EXPECT_EQ(store.Add(second), OkStatus());
  EXPECT_EQ(store.Add(RandomChunk(1, 1)), OkStatus());
  EXPECT_THAT(IdsOf(store), ElementsAre(1, 2)) << "in the order of their numbers";
  ASSERT_EQ(store.Begin(false), OkStatus());
  std::shared_ptr<Chunk> taken;
  const Status come = store.Add(RandomChunk(3, 3));
  const Status leave = store.Take(1, &taken);
  for (const Status& status : {come, leave}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the task owns its chunks until its iteration ends"));
  }
  EXPECT_THAT(std::string(come.message()), HasSubstr("chunk 3 can't come"));
  EXPECT_THAT(std::string(leave.message()), HasSubstr("chunk 1 can't leave"));
  EXPECT_EQ(taken, nullptr);
  ASSERT_EQ(store.End(false), OkStatus());
  EXPECT_EQ(store.Take(2, &taken), OkStatus());
  EXPECT_EQ(taken, second);
  EXPECT_THAT(IdsOf(store), ElementsAre(1));
}

TEST(ChunkStoreTest, NobodyHasAChunkTwiceOrGivesWhatHeHasNot) {
  ChunkStore store;
  EXPECT_EQ(store.Add(RandomChunk(1, 1)), OkStatus());
  const Status twice = store.Add(RandomChunk(1, 2));
  EXPECT_EQ(twice.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("chunk 1 comes to a task that has it"));
  std::shared_ptr<Chunk> taken;
  const Status missing = store.Take(7, &taken);
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("chunk 7"));
}

TEST(ChunkStoreTest, IterationsFollowEachOther) {
  ChunkStore store;
  EXPECT_EQ(store.End(false).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.CheckThatSchedulerOwns("moving"), OkStatus());
  EXPECT_THAT(std::string(store.CheckThatTaskOwns("writing").message()),
              HasSubstr("writing: the scheduler owns a task's chunks until its next iteration"));
  ASSERT_EQ(store.Begin(false), OkStatus());
  EXPECT_EQ(store.Begin(false).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.CheckThatTaskOwns("writing"), OkStatus());
  EXPECT_EQ(store.CheckThatSchedulerOwns("moving").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.Commit().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.End(false), OkStatus());
  EXPECT_EQ(store.Commit(), OkStatus());
}

TEST(ChunkStoreTest, TheVersionTellsOfWhatCameAndWent) {
  ChunkStore store;
  EXPECT_EQ(store.version(), 0u);
  EXPECT_EQ(store.Add(RandomChunk(1, 1)), OkStatus());
  EXPECT_EQ(store.version(), 1u);
  ASSERT_EQ(store.Begin(true), OkStatus());
  ASSERT_EQ(store.End(true), OkStatus());
  ASSERT_EQ(store.Commit(), OkStatus());
  store.Restore();
  EXPECT_FALSE(store.Add(RandomChunk(1, 1)).ok());
  std::shared_ptr<Chunk> taken;
  EXPECT_FALSE(store.Take(2, &taken).ok());
  EXPECT_EQ(store.version(), 1u) << "nothing came or went";
  EXPECT_EQ(store.Take(1, &taken), OkStatus());
  EXPECT_EQ(store.version(), 2u);
}

TEST(ChunkStoreTest, RestoreAlsoEndsAnIteration) {
  ChunkStore store;
  const auto chunk = RandomChunk(1, 1);
  ASSERT_EQ(store.Add(chunk), OkStatus());
  AlphaOf(*chunk)[0] = 1;
  ASSERT_EQ(store.Commit(), OkStatus());
  ASSERT_EQ(store.Begin(true), OkStatus());
  AlphaOf(*chunk)[0] = 2;
  store.Restore();
  EXPECT_EQ(AlphaOf(*chunk)[0], 1);
  EXPECT_EQ(store.CheckThatSchedulerOwns("moving"), OkStatus());
  EXPECT_EQ(store.Begin(true), OkStatus());
}

TEST(ChunkStoreTest, CheckedWritesBetweenIterationsAreErrors) {
  ChunkStore store;
  const auto chunk = RandomChunk(1, 1);
  ASSERT_EQ(store.Add(chunk), OkStatus());
  ASSERT_EQ(store.Add(RandomChunk(2, 2)), OkStatus());
  AlphaOf(*chunk)[0] = 1;  // nothing is known of it before the first iteration
  ASSERT_EQ(store.Begin(true), OkStatus());
  AlphaOf(*chunk)[0] = 2;  // the task's right
  ASSERT_EQ(store.End(true), OkStatus());
  ASSERT_EQ(store.Commit(), OkStatus());  // is no such write
  ASSERT_EQ(store.Begin(true), OkStatus());
  ASSERT_EQ(store.End(true), OkStatus());
  AlphaOf(*chunk)[0] = 3;
  const Status begun = store.Begin(true);
  EXPECT_EQ(begun.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(begun.message()), HasSubstr("chunk 1 was written to between iterations"));
  std::shared_ptr<Chunk> taken;
  EXPECT_THAT(std::string(store.Take(1, &taken).message()), HasSubstr("was written to"));
  EXPECT_EQ(store.Take(2, &taken), OkStatus());
  EXPECT_EQ(store.CheckThatSchedulerOwns("moving"), OkStatus());
  AlphaOf(*chunk)[0] = 2;
  EXPECT_EQ(store.Begin(true), OkStatus()) << "it is as it was";
}

TEST(ChunkStoreTest, UncheckedWritesAreNotLookedFor) {
  ChunkStore store;
  const auto chunk = RandomChunk(1, 1);
  ASSERT_EQ(store.Add(chunk), OkStatus());
  ASSERT_EQ(store.Begin(false), OkStatus());
  ASSERT_EQ(store.End(false), OkStatus());
  AlphaOf(*chunk)[0] = 3;
  EXPECT_EQ(store.Begin(true), OkStatus());
}

TEST(ChunkStoreTest, WhatCameMeanwhileIsNotLookedAt) {
  ChunkStore store;
  ASSERT_EQ(store.Add(RandomChunk(1, 1)), OkStatus());
  ASSERT_EQ(store.Begin(true), OkStatus());
  ASSERT_EQ(store.End(true), OkStatus());
  std::shared_ptr<Chunk> taken;
  ASSERT_EQ(store.Take(1, &taken), OkStatus());
  ASSERT_EQ(store.Add(RandomChunk(1, 9)), OkStatus());  // of the same number, from another task
  EXPECT_EQ(store.Begin(true), OkStatus());
}

}  // namespace
}  // namespace trepak
