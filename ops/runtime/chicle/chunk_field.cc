#include "ops/runtime/chicle/chunk_field.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace trepak {
namespace {

bool HasChunkType(const ChunkField& field) {
  const bool has_bits = field.bits == 8 || field.bits == 16 || field.bits == 32 || field.bits == 64;
  switch (field.code) {  // as DLPack has it
    case 0:
    case 1:
      return has_bits;
    case 2:
      return has_bits && field.bits != 8;
    case 6:
      return field.bits == 8;
    default:
      return false;
  }
}

// A number of elements that can't overflow.
bool IsBelowMost(const std::vector<int64_t>& shape, uint64_t samples) {
  uint64_t product = std::max<uint64_t>(samples, 1);
  for (const int64_t dimension : shape) {
    if (dimension < 0 || (dimension > 0 && product > kMostChunkBytes / dimension)) {
      return false;
    }
    product *= std::max<int64_t>(dimension, 1);
  }
  return product <= kMostChunkBytes;
}

Status CheckField(uint64_t id, uint32_t samples, const ChunkField& field) {
  const std::string named = "field '" + field.name + "' ";
  if (field.name.empty() || field.name.size() > ChunkField::kMostName) {
    return WrongChunk(id, named + "needs a name of 1 to 23 bytes");
  }
  if (!HasChunkType(field)) {
    return WrongChunk(id, named + "has elements of " + std::to_string(field.bits) +
                              " bits of type " + std::to_string(field.code) +
                              ": there can be bools, integers and floats of up to 64 bits");
  }
  // Columns that are not there take no room.
  if (field.shape.size() > ChunkField::kMostDimensions ||
      !IsBelowMost(field.shape, field.is_sparse ? 1 : samples)) {
    return WrongChunk(id, named + "has a shape that no chunk can hold");
  }
  const bool has_columns =
      field.shape.size() == 1 && field.shape[0] <= std::numeric_limits<int32_t>::max();
  if (field.is_sparse && (!has_columns || field.is_state || field.nonzeros > kMostChunkBytes)) {
    return WrongChunk(
        id, named + "is sparse: its samples are rows of up to 2^31 columns, and no state");
  }
  return OkStatus();
}

}  // namespace

uint64_t ChunkField::sample_elements() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1},
                         [](uint64_t product, int64_t next) { return product * next; });
}

Status WrongChunk(uint64_t id, const std::string& what) {
  return InvalidArgumentError(NameOfChunk(id) + ": " + what);
}

Status CheckFields(uint64_t id, uint32_t samples, const std::vector<ChunkField>& fields) {
  if (fields.empty() || fields.size() > ChunkField::kMost) {
    return WrongChunk(id, "it has " + std::to_string(fields.size()) + " fields; 1 to 16 can be");
  }
  for (const ChunkField& field : fields) {
    TREPAK_RETURN_IF_ERROR(CheckField(id, samples, field));
  }
  return OkStatus();
}

}  // namespace trepak
