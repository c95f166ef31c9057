// Which server has which part of a variable (Geryon, section IV: parameter partition and slicing).

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_PARTITION_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_PARTITION_H_

#include <cstdint>
#include <vector>

namespace trepak {

struct PartitionOptions {
  std::vector<uint32_t> servers;  // ranks; at least one
  // Every variable is split evenly over the servers; otherwise whole ones go round robin.
  bool split = true;
  // Pieces with more elements are cut into slices; 0 cuts nothing.
  int64_t slice_elements = 1024 * 1024;
  // A piece with fewer elements is not worth a message of its own: such variables go round robin.
  int64_t smallest_piece = 512;
};

struct Slice {
  uint32_t server = 0;  // rank
  int64_t offset = 0;   // of its first element in the flat variable
  int64_t elements = 0;
};

// Returns the slices of variable number `key`, in the order of their offsets; all ranks get the
// same. Slices of a piece differ by one element at most. A variable without elements has one empty
// slice.
std::vector<Slice> Partition(uint32_t key, int64_t elements, const PartitionOptions& options);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_PARTITION_H_
