// What lies in a pool, in a few lines, for errors.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_POOL_MAP_H_
#define TREPAK_OPS_RUNTIME_DYMEM_POOL_MAP_H_

#include <string>
#include <vector>

#include "ops/runtime/dymem/memory_pool.h"
#include "ops/runtime/dymem/placement.h"

namespace trepak {

// How much lives, by class; the largest blocks and gaps; what is kept back, and what lies outside.
// `blocks`: Placement::Map(). No newline at its end.
std::string DescribePool(const PoolFigures& figures, std::vector<Placement::Block> blocks);

// "1.5 MiB".
std::string DescribeBytes(size_t bytes);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_POOL_MAP_H_
