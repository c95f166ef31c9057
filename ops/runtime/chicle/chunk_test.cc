#include "ops/runtime/chicle/chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "ops/runtime/chicle/chunk_testing.h"

namespace trepak {
namespace {

using testing::HasSubstr;

TEST(ChunkTest, EveryArrayBeginsAtAMultipleOf64Bytes) {
  for (uint32_t samples = 0; samples < 70; ++samples) {
    ChunkField flag = DenseField("flag", {3}, 8);
    flag.code = 6;
    const auto chunk =
        MadeChunk(samples, samples,
                  {flag, SparseField("rows", 9, 5 * samples), StateField("alpha", {3}, 16)});
    std::vector<std::pair<const void*, size_t>> placed;
    for (size_t i = 0; i < 3; ++i) {
      const ChunkArrays& arrays = chunk->arrays()[i];
      const size_t bytes = ElementsOf(*chunk, i) * chunk->fields()[i].element_bytes();
      placed.emplace_back(arrays.starts, (samples + 1) * sizeof(int64_t));
      placed.emplace_back(arrays.columns, ElementsOf(*chunk, i) * sizeof(int32_t));
      placed.emplace_back(arrays.values, bytes);
      placed.emplace_back(arrays.committed, bytes);
    }
    const char* end = nullptr;
    size_t arrays = 0;
    for (const auto& [begin, bytes] : placed) {
      if (begin == nullptr) {
        continue;
      }
      ++arrays;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, 0u);
      EXPECT_GE(static_cast<const char*>(begin), end) << "one lies in another";
      end = static_cast<const char*>(begin) + bytes;
    }
    EXPECT_EQ(arrays, 6u);
    EXPECT_EQ(chunk->bytes() % 64, 0u);
    EXPECT_EQ(chunk->bytes(), Chunk::BytesOf(samples, chunk->fields()));
    EXPECT_EQ(chunk->bytes(), chunk->Stamped().size());
    Touch(chunk.get());
  }
}

TEST(ChunkTest, WhatCannotBeIsNotMade) {
  const ChunkField good = DenseField("x", {2});
  const auto error_of = [](std::vector<ChunkField> fields, uint32_t samples = 4) {
    std::shared_ptr<Chunk> chunk;
    const Status status = Chunk::Make(9, samples, std::move(fields), &chunk);
    EXPECT_EQ(chunk, nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error_of({}), HasSubstr("chunk 9: it has 0 fields"));
  EXPECT_THAT(error_of(std::vector<ChunkField>(17, good)), HasSubstr("17 fields"));
  EXPECT_THAT(error_of({DenseField("", {})}), HasSubstr("needs a name"));
  EXPECT_THAT(error_of({DenseField(std::string(24, 'n'), {})}), HasSubstr("needs a name"));
  EXPECT_THAT(error_of({DenseField("x", {}, 12)}), HasSubstr("field 'x' has elements of 12 bits"));
  EXPECT_THAT(error_of({DenseField("x", {}, 8)}), HasSubstr("8 bits of type 2"));
  EXPECT_THAT(error_of({DenseField("x", {-1})}), HasSubstr("no chunk can hold"));
  EXPECT_THAT(error_of({DenseField("x", std::vector<int64_t>(7, 1))}), HasSubstr("no chunk"));
  EXPECT_THAT(error_of({DenseField("x", {int64_t{1} << 62, 0, 8})}), HasSubstr("no chunk"));
  EXPECT_THAT(error_of({DenseField("x", {int64_t{1} << 37}, 64)}, 8), HasSubstr("too large"));
  EXPECT_THAT(error_of({SparseField("x", int64_t{1} << 31, 3)}), HasSubstr("is sparse"));
  EXPECT_THAT(error_of({SparseField("x", 4, uint64_t{1} << 41)}), HasSubstr("is sparse"));
  ChunkField state = SparseField("x", 4, 3);
  state.is_state = true;
  EXPECT_THAT(error_of({state}), HasSubstr("is sparse"));
}

TEST(ChunkTest, ColumnsThatAreNotThereTakeNoRoom) {
  const auto chunk =
      MadeChunk(1, 100'000, {SparseField("x", std::numeric_limits<int32_t>::max(), 10)});
  EXPECT_LT(chunk->bytes(), 1'000'000u);
}

TEST(ChunkTest, StateGoesBackToWhatWasCommitted) {
  const auto chunk = RandomChunk(1, 1);
  const int field = chunk->Find("alpha");
  ASSERT_EQ(field, 3);
  EXPECT_EQ(chunk->Find("beta"), -1);
  auto* const alpha = static_cast<double*>(chunk->arrays()[field].values);
  auto* const x = static_cast<float*>(chunk->arrays()[0].values);
  alpha[13] = 1.5;
  chunk->Commit();
  const uint64_t digest = chunk->Digest();
  alpha[13] = 2.5;
  EXPECT_NE(chunk->Digest(), digest);
  x[0] = 7;
  chunk->Restore();
  EXPECT_EQ(alpha[13], 1.5);
  EXPECT_EQ(x[0], 7) << "what is no state stays";
}

TEST(ChunkTest, WhatIsAdoptedIsEqualAndLiesWhereItCame) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto chunk = RandomChunk(seed, seed, seed);
    chunk->Commit();
    Payload sent = CopyOf(chunk.get());
    const void* const memory = sent.data();
    std::shared_ptr<Chunk> adopted;
    ASSERT_EQ(Chunk::Adopt(std::move(sent), &adopted), OkStatus());
    EXPECT_EQ(adopted->id(), chunk->id());
    EXPECT_EQ(adopted->samples(), chunk->samples());
    EXPECT_EQ(adopted->Digest(), chunk->Digest());
    EXPECT_EQ(Touch(adopted.get()), Touch(chunk.get()));
    EXPECT_EQ(adopted->Stamped().data(), memory);
    for (size_t i = 0; i < chunk->fields().size(); ++i) {
      EXPECT_EQ(adopted->fields()[i].name, chunk->fields()[i].name);
      EXPECT_EQ(adopted->fields()[i].shape, chunk->fields()[i].shape);
      EXPECT_EQ(adopted->fields()[i].nonzeros, chunk->fields()[i].nonzeros);
    }
  }
}

// As ZeroMQ's own memory of a message does.
TEST(ChunkTest, WhatBeginsElsewhereIsCopied) {
  const auto chunk = RandomChunk(3, 3);
  chunk->Commit();
  const Payload sent = CopyOf(chunk.get());
  for (const size_t offset : {1, 8, 16, 63}) {
    Payload room = Payload::Allocate(sent.size() + 64);
    std::memcpy(static_cast<char*>(room.mutable_data()) + offset, sent.data(), sent.size());
    const Payload shifted = room.Part(offset, sent.size());
    EXPECT_FALSE(Chunk::IsPlaced(shifted));
    std::shared_ptr<Chunk> adopted;
    ASSERT_EQ(Chunk::Adopt(shifted, &adopted), OkStatus());
    EXPECT_TRUE(Chunk::IsPlaced(adopted->Stamped()));
    EXPECT_EQ(Touch(adopted.get()), Touch(chunk.get()));
  }
}

}  // namespace
}  // namespace trepak
