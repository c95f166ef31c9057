// What comes as a chunk, whatever it holds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "ops/runtime/chicle/chunk_testing.h"
#include "ops/runtime/net/checksum.h"

namespace trepak {
namespace {

using testing::HasSubstr;

// Where the block says what; see BlockHeader and BlockField.
constexpr size_t kMagicAt = 8, kVersionAt = 12, kFieldsAt = 14, kBytesAt = 24, kSamplesAt = 32;
constexpr size_t kTableAt = 64, kEntryBytes = 128;
constexpr size_t kCodeAt = 24, kBitsAt = 25, kStateAt = 26, kSparseAt = 27, kDimensionsAt = 28;
constexpr size_t kShapeAt = 32, kNonzerosAt = 80;
constexpr size_t EntryAt(size_t field) { return kTableAt + field * kEntryBytes; }

template <typename Value>
void Write(Payload* block, size_t at, Value value) {
  std::memcpy(static_cast<char*>(block->mutable_data()) + at, &value, sizeof value);
}

// A block with the checksum of what it holds, as one who lies would send it.
void Stamp(Payload* block) {
  Write(block, 0, Checksum(static_cast<const char*>(block->data()) + 8, block->size() - 8));
}

Status Adopted(Payload block) {
  std::shared_ptr<Chunk> chunk;
  const Status status = Chunk::Adopt(std::move(block), &chunk);
  EXPECT_EQ(chunk != nullptr, status.ok());
  return status;
}

TEST(ChunkAdoptionTest, TruncatedBlocksAreErrors) {
  const auto chunk = RandomChunk(1, 1);
  const std::string all(chunk->Stamped().view());
  for (size_t size = 0; size < all.size(); ++size) {
    EXPECT_FALSE(Adopted(Payload::Copy(all.data(), size)).ok()) << size;
    Payload lying = Payload::Copy(all.data(), size);
    if (size >= 64) {
      Write<uint64_t>(&lying, kBytesAt, size);
      Stamp(&lying);
      EXPECT_FALSE(Adopted(lying).ok()) << size;
    }
  }
  EXPECT_FALSE(Adopted(Payload::Copy(all + std::string(64, '\0'))).ok());
}

TEST(ChunkAdoptionTest, FlippedBitsAreErrors) {
  const auto chunk = RandomChunk(1, 1);
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    Payload damaged = CopyOf(chunk.get());
    const size_t bit = random() % (8 * damaged.size());
    static_cast<unsigned char*>(damaged.mutable_data())[bit / 8] ^= 1u << bit % 8;
    EXPECT_FALSE(Adopted(damaged).ok()) << "bit " << bit;
  }
  Payload damaged = CopyOf(chunk.get());
  Write<char>(&damaged, damaged.size() - 1, 1);
  EXPECT_THAT(std::string(Adopted(damaged).message()),
              HasSubstr("chunk 1: its checksum is wrong: it was damaged on its way"));
}

TEST(ChunkAdoptionTest, GarbageIsAnError) {
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    std::string garbage(random() % 600, '\0');
    std::generate(garbage.begin(), garbage.end(), [&] { return static_cast<char>(random()); });
    EXPECT_FALSE(Adopted(Payload::Copy(garbage)).ok());
  }
}

// The field of each kind in RandomChunk.
enum : size_t { kDense, kRows, kScalar, kState };

// What a sender that lies, with a right checksum, may say; it must be found.
TEST(ChunkAdoptionTest, LiesOfTheHeaderAreErrors) {
  const auto chunk = RandomChunk(5, 5);
  int lies = 0;
  const auto lie = [&](size_t at, auto value, const std::string& error) {
    Payload block = CopyOf(chunk.get());
    ASSERT_NE(std::memcmp(static_cast<const char*>(block.data()) + at, &value, sizeof value), 0);
    Write(&block, at, value);
    Stamp(&block);
    EXPECT_THAT(std::string(Adopted(block).message()), HasSubstr(error)) << "at " << at;
    ++lies;
  };
  lie(kMagicAt, uint32_t{1}, "is none, or of another version");
  lie(kVersionAt, uint16_t{2}, "is none, or of another version");
  lie(kBytesAt, uint64_t{64}, "is none");
  lie(kBytesAt, ~uint64_t{0}, "is none");
  lie(kFieldsAt, uint16_t{0}, "chunk 5: it has 0 fields");
  lie(kFieldsAt, uint16_t{3}, "another size");
  lie(kFieldsAt, uint16_t{17}, "chunk 5: it has no room for its fields");
  lie(kFieldsAt, uint16_t{65535}, "no room");
  lie(kSamplesAt, uint32_t{0}, "another size");
  lie(kSamplesAt, uint32_t{8}, "another size");
  lie(kSamplesAt, ~uint32_t{0}, "another size");
  lie(EntryAt(kDense), char{0}, "needs a name");
  lie(EntryAt(kDense) + kCodeAt, uint8_t{4}, "of type 4");
  lie(EntryAt(kDense) + kCodeAt, uint8_t{6}, "of type 6");
  lie(EntryAt(kDense) + kBitsAt, uint8_t{0}, "of 0 bits");
  lie(EntryAt(kDense) + kBitsAt, uint8_t{255}, "of 255 bits");
  lie(EntryAt(kDense) + kBitsAt, uint8_t{64}, "another size");
  lie(EntryAt(kDense) + kStateAt, uint8_t{1}, "another size");
  lie(EntryAt(kDense) + kSparseAt, uint8_t{1}, "is sparse");
  lie(EntryAt(kScalar) + kSparseAt, uint8_t{1}, "is sparse");
  lie(EntryAt(kState) + kSparseAt, uint8_t{1}, "is sparse");
  lie(EntryAt(kState) + kStateAt, uint8_t{0}, "another size");
  lie(EntryAt(kRows) + kSparseAt, uint8_t{0}, "another size");
  lie(EntryAt(kRows) + kStateAt, uint8_t{1}, "is sparse");
  lie(EntryAt(kDense) + kDimensionsAt, uint32_t{7}, "no chunk can hold");
  lie(EntryAt(kDense) + kDimensionsAt, ~uint32_t{0}, "no chunk can hold");
  lie(EntryAt(kDense) + kDimensionsAt, uint32_t{3}, "another size");
  lie(EntryAt(kDense) + kShapeAt, int64_t{-3}, "no chunk can hold");
  lie(EntryAt(kDense) + kShapeAt, int64_t{1} << 62, "no chunk can hold");
  lie(EntryAt(kDense) + kShapeAt, int64_t{1} << 33, "another size");
  lie(EntryAt(kRows) + kShapeAt, int64_t{1} << 31, "is sparse");
  lie(EntryAt(kRows) + kShapeAt, int64_t{10}, "has a column beyond its 10 columns");
  lie(EntryAt(kRows) + kShapeAt, int64_t{0}, "has a column beyond its 0 columns");
  lie(EntryAt(kRows) + kNonzerosAt, uint64_t{28}, "the rows of field 'rows' are not in order");
  lie(EntryAt(kRows) + kNonzerosAt, uint64_t{500}, "another size");
  lie(EntryAt(kRows) + kNonzerosAt, ~uint64_t{0}, "is sparse");
  EXPECT_EQ(lies, 36);
}

TEST(ChunkAdoptionTest, RowsAndColumnsThatCannotBeAreErrors) {
  const auto chunk = MadeChunk(5, 4, {SparseField("rows", 11, 8)});
  auto* const starts = const_cast<int64_t*>(chunk->arrays()[0].starts);
  auto* const columns = const_cast<int32_t*>(chunk->arrays()[0].columns);
  const std::vector<int64_t> good = {0, 2, 2, 5, 8};
  std::copy(good.begin(), good.end(), starts);
  EXPECT_EQ(chunk->CheckRows(), OkStatus());
  EXPECT_EQ(Adopted(CopyOf(chunk.get())), OkStatus());
  for (const std::vector<int64_t>& bad : {std::vector<int64_t>{1, 2, 2, 5, 8},
                                          {0, 3, 2, 5, 8},
                                          {0, 2, 2, 5, 9},
                                          {0, 2, 2, 5, 7},
                                          {-8, 2, 2, 5, 8},
                                          {0, 2, 2, 9, 8},
                                          {0, -5, 2, 5, 8},
                                          {0, int64_t{1} << 40, 2, 5, 8}}) {
    std::copy(bad.begin(), bad.end(), starts);
    EXPECT_THAT(std::string(Adopted(CopyOf(chunk.get())).message()),
                HasSubstr("chunk 5: the rows of field 'rows' are not in order"));
    EXPECT_FALSE(chunk->CheckRows().ok());
  }
  std::copy(good.begin(), good.end(), starts);
  for (const int32_t bad : {-1, 11, 1 << 30, std::numeric_limits<int32_t>::min()}) {
    columns[7] = bad;
    EXPECT_THAT(std::string(Adopted(CopyOf(chunk.get())).message()),
                HasSubstr("field 'rows' has a column beyond its 11 columns"));
  }
}

// Whatever the table of fields says: it is found, or all that it names lies in the block.
TEST(ChunkAdoptionTest, RandomLiesReadNothingOutside) {
  const auto chunk = RandomChunk(6, 6);
  std::mt19937 random(3);
  int adopted = 0;
  for (int i = 0; i < 20'000; ++i) {
    Payload block = CopyOf(chunk.get());
    const size_t most = i % 3 == 0 ? block.size() : EntryAt(4);
    for (size_t k = 0; k < 1 + random() % 3; ++k) {
      const size_t at = kFieldsAt + random() % (most - kFieldsAt);
      const unsigned char value =
          random() % 2 == 0 ? static_cast<unsigned char>(random()) : random() % 4;
      Write(&block, at, value);
    }
    Stamp(&block);
    std::shared_ptr<Chunk> made;
    if (Chunk::Adopt(block, &made).ok()) {
      ++adopted;
      Touch(made.get());
    }
  }
  EXPECT_GT(adopted, 100) << "some bytes mean nothing, or nothing that matters";
}

}  // namespace
}  // namespace trepak
