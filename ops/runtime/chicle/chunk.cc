#include "ops/runtime/chicle/chunk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/runtime/net/checksum.h"

namespace trepak {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint32_t kMagic = 0x4b4e4843;  // "CHNK"
constexpr uint16_t kVersion = 1;

struct BlockHeader {
  uint64_t checksum = 0;  // of all that follows it
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t fields = 0;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint32_t samples = 0;
  uint32_t unused[7] = {};
};
static_assert(sizeof(BlockHeader) == kAlignment);

struct BlockField {
  char name[ChunkField::kMostName + 1] = {};
  uint8_t code = 0;
  uint8_t bits = 0;
  uint8_t is_state = 0;
  uint8_t is_sparse = 0;
  uint32_t dimensions = 0;
  int64_t shape[ChunkField::kMostDimensions] = {};
  uint64_t nonzeros = 0;
  uint64_t unused[5] = {};
};
static_assert(sizeof(BlockField) == 2 * kAlignment);

// Lays arrays one behind the other.
class Places {
 public:
  explicit Places(uint64_t begin) : end_(begin) {}

  uint64_t Next(uint64_t elements, uint64_t element_bytes) {
    const uint64_t begin = end_;
    const uint64_t bytes = elements * element_bytes;
    end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_;
};

// Passes each array of each field: its field, which of ChunkArrays, and where it begins. Returns
// the end.
template <typename Take>
uint64_t LayOut(uint32_t samples, const std::vector<ChunkField>& fields, const Take& take) {
  enum : int { kStarts, kColumns, kValues, kCommitted };
  Places places(sizeof(BlockHeader) + fields.size() * sizeof(BlockField));
  for (size_t i = 0; i < fields.size(); ++i) {
    const ChunkField& field = fields[i];
    uint64_t elements = samples * field.sample_elements();
    if (field.is_sparse) {
      elements = field.nonzeros;
      take(i, kStarts, places.Next(uint64_t{samples} + 1, sizeof(int64_t)));
      take(i, kColumns, places.Next(elements, sizeof(int32_t)));
    }
    take(i, kValues, places.Next(elements, field.element_bytes()));
    if (field.is_state) {
      take(i, kCommitted, places.Next(elements, field.element_bytes()));
    }
  }
  return places.end();
}

BlockField EntryOf(const ChunkField& field) {
  BlockField entry;
  field.name.copy(entry.name, ChunkField::kMostName);
  entry.code = field.code;
  entry.bits = field.bits;
  entry.is_state = field.is_state ? 1 : 0;
  entry.is_sparse = field.is_sparse ? 1 : 0;
  entry.dimensions = static_cast<uint32_t>(field.shape.size());
  std::copy(field.shape.begin(), field.shape.end(), entry.shape);
  entry.nonzeros = field.nonzeros;
  return entry;
}

ChunkField FieldOf(const BlockField& entry) {
  ChunkField field;
  field.name.assign(entry.name, strnlen(entry.name, ChunkField::kMostName));
  field.code = entry.code;
  field.bits = entry.bits;
  field.is_state = entry.is_state != 0;
  field.is_sparse = entry.is_sparse != 0;
  const auto dimensions = std::min<uint64_t>(entry.dimensions, ChunkField::kMostDimensions);
  field.shape.assign(entry.shape, entry.shape + dimensions);
  if (entry.dimensions > dimensions) {
    field.shape.resize(ChunkField::kMostDimensions + 1);  // which can't be, as a check will say
  }
  field.nonzeros = entry.nonzeros;
  return field;
}

uint64_t ChecksumOf(const Payload& block) {
  constexpr size_t kBegin = sizeof(uint64_t);
  return Checksum(static_cast<const char*>(block.data()) + kBegin, block.size() - kBegin);
}

}  // namespace

uint64_t Chunk::BytesOf(uint32_t samples, const std::vector<ChunkField>& fields) {
  return LayOut(samples, fields, [](size_t, int, uint64_t) {});
}

Status Chunk::Make(uint64_t id, uint32_t samples, std::vector<ChunkField> fields,
                   std::shared_ptr<Chunk>* chunk) {
  TREPAK_RETURN_IF_ERROR(CheckFields(id, samples, fields));
  if (BytesOf(samples, fields) > kMostChunkBytes) {
    return WrongChunk(id, "it is too large");
  }
  Payload memory = Payload::Allocate(BytesOf(samples, fields));
  std::memset(memory.mutable_data(), 0, memory.size());
  BlockHeader header;
  header.fields = static_cast<uint16_t>(fields.size());
  header.id = id;
  header.bytes = memory.size();
  header.samples = samples;
  auto* const begin = static_cast<char*>(memory.mutable_data());
  std::memcpy(begin, &header, sizeof header);
  for (size_t i = 0; i < fields.size(); ++i) {
    const BlockField entry = EntryOf(fields[i]);
    std::memcpy(begin + sizeof header + i * sizeof entry, &entry, sizeof entry);
  }
  chunk->reset(new Chunk(std::move(memory), id, samples, std::move(fields)));
  (*chunk)->PlaceArrays();
  return OkStatus();
}

bool Chunk::IsPlaced(const Payload& memory) {
  return reinterpret_cast<uintptr_t>(memory.data()) % kAlignment == 0;
}

Status Chunk::Adopt(Payload memory, std::shared_ptr<Chunk>* chunk) {
  BlockHeader header;
  if (memory.size() < sizeof header) {
    return InvalidArgumentError("a chunk of " + std::to_string(memory.size()) + " bytes is none");
  }
  std::memcpy(&header, memory.data(), sizeof header);
  if (header.magic != kMagic || header.version != kVersion || header.bytes != memory.size()) {
    return InvalidArgumentError("what came as a chunk is none, or of another version of trepak");
  }
  if (header.checksum != ChecksumOf(memory)) {
    return WrongChunk(header.id, "its checksum is wrong: it was damaged on its way");
  }
  const size_t table = size_t{header.fields} * sizeof(BlockField);
  if (header.fields > ChunkField::kMost || memory.size() < sizeof header + table) {
    return WrongChunk(header.id, "it has no room for its fields");
  }
  std::vector<ChunkField> fields;
  for (size_t i = 0; i < header.fields; ++i) {
    BlockField entry;
    const auto* const begin = static_cast<const char*>(memory.data());
    std::memcpy(&entry, begin + sizeof header + i * sizeof entry, sizeof entry);
    fields.push_back(FieldOf(entry));
  }
  TREPAK_RETURN_IF_ERROR(CheckFields(header.id, header.samples, fields));
  if (BytesOf(header.samples, fields) != memory.size()) {
    return WrongChunk(header.id, "its fields need another size than it has");
  }
  if (!IsPlaced(memory)) {
    memory = Payload::Copy(memory.view());
  }
  std::shared_ptr<Chunk> made(
      new Chunk(std::move(memory), header.id, header.samples, std::move(fields)));
  made->PlaceArrays();
  TREPAK_RETURN_IF_ERROR(made->CheckRows());
  *chunk = std::move(made);
  return OkStatus();
}

int Chunk::Find(std::string_view name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [name](const ChunkField& field) { return field.name == name; });
  return found == fields_.end() ? -1 : static_cast<int>(found - fields_.begin());
}

void Chunk::PlaceArrays() {
  arrays_.resize(fields_.size());
  auto* const begin = static_cast<char*>(memory_.mutable_data());
  LayOut(samples_, fields_, [this, begin](size_t field, int which, uint64_t place) {
    char* const data = begin + place;
    ChunkArrays& arrays = arrays_[field];
    switch (which) {
      case 0:
        arrays.starts = reinterpret_cast<const int64_t*>(data);
        break;
      case 1:
        arrays.columns = reinterpret_cast<const int32_t*>(data);
        break;
      case 2:
        arrays.values = data;
        break;
      default:
        arrays.committed = data;
    }
  });
}

Status Chunk::CheckRows() const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    const ChunkField& field = fields_[i];
    if (!field.is_sparse) {
      continue;
    }
    const int64_t* const starts = arrays_[i].starts;
    const bool in_order = starts[0] == 0 && std::is_sorted(starts, starts + samples_ + 1) &&
                          starts[samples_] == static_cast<int64_t>(field.nonzeros);
    if (!in_order) {
      return WrongChunk(id_, "the rows of field '" + field.name + "' are not in order");
    }
    const int32_t* const columns = arrays_[i].columns;
    const auto most = static_cast<int32_t>(field.shape[0]);
    if (std::any_of(columns, columns + field.nonzeros,
                    [most](int32_t column) { return column < 0 || column >= most; })) {
      return WrongChunk(id_, "field '" + field.name + "' has a column beyond its " +
                                 std::to_string(most) + " columns");
    }
  }
  return OkStatus();
}

void Chunk::CopyState(bool back) {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].is_state) {
      const ChunkArrays& arrays = arrays_[i];
      const size_t bytes = samples_ * fields_[i].sample_elements() * fields_[i].element_bytes();
      std::memcpy(back ? arrays.values : arrays.committed, back ? arrays.committed : arrays.values,
                  bytes);
    }
  }
}

Payload Chunk::Stamped() {
  const uint64_t checksum = ChecksumOf(memory_);
  std::memcpy(memory_.mutable_data(), &checksum, sizeof checksum);
  return memory_;
}

uint64_t Chunk::Digest() const { return ChecksumOf(memory_); }

}  // namespace trepak
