// How long ranks would wait: the scheduler's decisions on recorded times, event by event.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SIMULATION_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"

namespace trepak {

// How long workers' steps take, in seconds. A view: the values are the caller's.
//
// Without `until` they are taken one after another; then the first one comes again. With it, a step
// ends when its worker has done as much as a step is at the speeds that it had in the record at
// that time: workers that share a machine or a network are slow together, and would soon not be if
// each took its recorded steps one after another. The record begins anew when that of any worker is
// over.
struct Intervals {
  const double* values = nullptr;  // [workers, steps]
  // When the next interval's speed takes over, in seconds since the record's begin; rising.
  const double* until = nullptr;  // [workers, steps]
  size_t workers = 0;
  size_t steps = 0;
  // By how much the first step after a barrier is longer, as all ranks then fetch parameters at
  // once: a factor. Null: it is not.
  const double* after_barrier = nullptr;  // [workers]
  double begin = 0;  // seconds of the record that are over when the simulation begins

  // Seconds of the record, with `until`.
  double length() const;
  // How long it takes to do as much as `work` steps are, from now on; `length`: of the record.
  double of(size_t worker, uint64_t step, double work, double now, double length) const;
};

struct Simulated {
  struct Step {
    uint32_t worker = 0;
    double begin = 0;
    double end = 0;
  };
  double seconds = 0;           // until all workers together had taken so many steps
  std::vector<double> waiting;  // by worker, seconds
  std::vector<uint64_t> taken;  // by worker, steps
  std::vector<Step> steps;      // of all workers, in the order of their ends
  ElasticBspScheduler::Counters counters;
};

// Runs the scheduler that a real job runs until workers have taken `steps` together. Messages take
// no time, but for what the intervals hold.
//
// `pauses`: after how many steps of all of them together workers pause, in rising order, as they do
// at the end of an epoch: whoever has ended a step begins no other, and when all have paused, all
// begin anew. With the last pause it ends, if it has not before.
//
// Thread safety: a function of its arguments alone.
Simulated Simulate(const ElasticBspScheduler::Rules& rules, const Intervals& intervals,
                   uint64_t steps, const std::vector<uint64_t>& pauses = {});

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SIMULATION_H_
