// Where a barrier makes workers wait least (ElasticBSP, sections III and IV).

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ZIPLINE_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ZIPLINE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/runtime/net/status.h"

namespace trepak {

// When workers' next iterations are expected to end, each worker's in ascending order. A view: the
// values are the caller's.
struct EndTimes {
  const double* values = nullptr;  // [workers, iterations]
  size_t workers = 0;              // n
  size_t iterations = 0;           // R

  const double* of(size_t worker) const { return values + worker * iterations; }
};

// One iteration of each worker, after which it stops (the paper's set Z).
struct Barrier {
  double waiting_time = 0;           // d_Z: of who stops first, for who stops last
  double barrier_time = 0;           // when that one stops
  std::vector<uint32_t> iterations;  // by worker: how many it does
};

// Fails, naming what is wrong, unless there is an iteration of each worker, all of them at finite
// times that do not descend.
Status CheckEndTimes(const EndTimes& ends);

// Returns the barrier with the least waiting time; of several, the earliest. Takes
// O(Rn log Rn) time where the paper's algorithm takes O(Rn²), and O(Rn) memory.
//
// Thread safety: a function of its arguments alone, as the others that search.
Barrier ZipLine(const EndTimes& ends);

// What the paper compares it with.
//
// Algorithm 2 as the paper analyses it: the set is searched for each end that comes. A set counts
// when it has an end of every worker, which the printed loop would not wait for.
Barrier ZipLineOfPaper(const EndTimes& ends);

// Algorithm 1: to each end of the worker that ends first, the nearest end of each other one.
// O(R²n), and not always the least.
Barrier GridScan(const EndTimes& ends);

// The same for the ends of each worker in turn. O(R²n²).
Barrier FullGridScan(const EndTimes& ends);

// All combinations: O(Rⁿ).
Barrier NaiveSearch(const EndTimes& ends);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ZIPLINE_H_
