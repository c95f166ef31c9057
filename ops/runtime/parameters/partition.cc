#include "ops/runtime/parameters/partition.h"

#include <algorithm>

namespace trepak {
namespace {

// Appends a piece in equal slices.
void Cut(uint32_t server, int64_t begin, int64_t end, int64_t slice_elements,
         std::vector<Slice>* slices) {
  const int64_t elements = end - begin;
  int64_t count = 1;
  if (slice_elements > 0) {
    count = std::max<int64_t>(1, (elements + slice_elements - 1) / slice_elements);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = begin + elements * i / count;
    const int64_t last = begin + elements * (i + 1) / count;
    slices->push_back({server, first, last - first});
  }
}

}  // namespace

std::vector<Slice> Partition(uint32_t key, int64_t elements, const PartitionOptions& options) {
  const auto servers = static_cast<int64_t>(options.servers.size());
  std::vector<Slice> slices;
  if (!options.split || elements < servers * options.smallest_piece) {
    Cut(options.servers[key % servers], 0, elements, options.slice_elements, &slices);
    return slices;
  }
  for (int64_t i = 0; i < servers; ++i) {
    Cut(options.servers[i], elements * i / servers, elements * (i + 1) / servers,
        options.slice_elements, &slices);
  }
  return slices;
}

}  // namespace trepak
