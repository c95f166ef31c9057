// An iteration with workers that take their time and do nothing: how much the scheduler has to do.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_REHEARSAL_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_REHEARSAL_H_

#include <cstdint>
#include <vector>

#include "ops/runtime/fela/fela_plan.h"
#include "ops/runtime/fela/fela_scheduler.h"

namespace trepak {

struct FelaPace {
  std::vector<double> fixed;   // by stage, from 1 on: seconds of a token
  std::vector<double> each;    // and of each of its samples
  double recomputing = 0.5;    // what a backward token takes longer where it goes forward first
  double latency = 0;          // seconds of a message, one way
  std::vector<double> delays;  // by worker, seconds before its first request; empty: none
};

struct FelaRehearsal {
  double seconds = 0;        // of virtual time, until all tokens are done
  double busy_seconds = 0;   // of this CPU, in which the scheduler was at work
  double worst_seconds = 0;  // of it, with one request
  uint64_t requests = 0;     // it was asked, reports among them
  uint64_t order = 0;        // a digest of who was given which token, in order
  FelaScheduler::Counters counters;
};

// Has workers train one iteration. Fails where the pace does not fit the rules, which were checked.
Status Rehearse(const FelaRules& rules, const FelaPace& pace, FelaRehearsal* result);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_REHEARSAL_H_
