// How far workers may go before they wait for others: to a barrier that is planned so that waiting
// is least (ElasticBSP), not too far ahead of the slowest (SSP), or on and on (ASP).

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SCHEDULER_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SCHEDULER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "ops/runtime/elastic_bsp/zipline.h"

namespace trepak {

// What is expected of something that takes about as long as it has lately.
class Expectation {
 public:
  enum class Kind {
    kLast,
    kMean,         // of the latest kWindow
    kExponential,  // each new one weighs kWeight
  };
  static constexpr size_t kWindow = 10;
  static constexpr double kWeight = 0.3;

  void Add(Kind kind, double seconds);
  double seconds() const { return expected_; }

 private:
  double expected_ = 0;
  bool has_any_ = false;
  std::deque<double> latest_;
};

// Knows of each worker how many steps it has taken and when, and nothing else: times are whoever's
// clock that calls it, in seconds, so that a real job and a simulation take the same decisions.
//
// A superstep of ElasticBSP begins when all workers have come to their barrier. From the intervals
// of its latest steps it is predicted when each worker ends its next `lookahead` ones, and ZipLine
// chooses one of these for each: that many steps it may take until the next barrier. Before there
// are intervals of all workers, a superstep is one step of each.
//
// A worker that has not answered for long while others wait is taken out: barriers are planned, and
// passed, without it. It may still take the steps that were granted; then it waits for the next
// barrier as the others do, and is back in. With SSP it is back in with its next step, as if it had
// kept up with the slowest.
//
// Thread safety: none, the owner locks.
class ElasticBspScheduler {
 public:
  enum class Model { kElasticBsp, kSsp, kAsp };

  struct Rules {
    Model model = Model::kElasticBsp;
    uint32_t workers = 1;
    uint32_t lookahead = 15;  // R, ElasticBSP's
    uint32_t staleness = 3;   // SSP's: steps that one may be ahead of the slowest
    Expectation::Kind prediction = Expectation::Kind::kMean;
    // A worker is taken out when a step takes it so many times as long as expected, and so many
    // seconds.
    double patience_factor = 10;
    double patience_seconds = 5;
    double most_patience_seconds = std::numeric_limits<double>::infinity();
    size_t most_recorded = 100'000;  // steps whose times are kept; later ones' are not
  };

  // A step that was timed; times in seconds.
  struct Step {
    uint32_t worker = 0;
    double end = 0;
    double computing = 0;
    double communication = 0;
  };

  // A worker may take steps until it has taken so many in all.
  struct Grant {
    uint32_t worker = 0;
    uint64_t steps = 0;
  };
  static constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();

  // What follows from an event.
  struct Orders {
    std::vector<Grant> grants;
    bool barrier = false;  // all who get one have come to a barrier
    std::vector<uint32_t> taken_out;
    std::vector<uint32_t> back;
  };

  // What has happened so far; times in seconds.
  struct Counters {
    uint64_t barriers = 0;       // also those of the rest, when others have paused
    uint64_t steps = 0;          // of all workers
    double waiting = 0;          // of all workers, at barriers
    double longest_waits = 0;    // of who came first, summed over barriers: the paper's d_Z
    double predicted_waits = 0;  // what these were planned to be, at barriers that were come to
    uint64_t predictions = 0;    // of ends of steps
    double error = 0;            // sum of how far off these were, in steps of that worker
    uint64_t taken_out = 0;
    double planning = 0;
  };

  explicit ElasticBspScheduler(const Rules& rules) : rules_(rules), workers_(rules.workers) {}

  // All workers begin, or go on after all have paused.
  Orders Begin(double now);

  // A worker has ended a step. For `communication` seconds of it, it has not computed but waited
  // for parameters, and for `held_up` ones for other workers, at a barrier's gate.
  Orders End(uint32_t worker, double now, double communication, double held_up = 0);

  // A worker takes no more steps until the next Begin.
  Orders Pause(uint32_t worker, double now);

  // Time has passed.
  Orders Tick(double now);

  // A worker does not answer, for another reason than that it takes too long for a step.
  Orders TakeOut(uint32_t worker, double now);

  // Until now workers could not go on, for no fault of theirs.
  void Excuse(double now) { excused_ = now; }

  // Seconds after which one that is at a step does not answer; infinite if nobody knows.
  double patience(uint32_t worker) const;

  // Those that others have waited for, and that have ended no step, for so many seconds or more.
  std::vector<uint32_t> Awaited(double now, double seconds) const;

  // What those that wait were granted.
  std::vector<Grant> Waiting() const;

  uint64_t superstep() const { return superstep_; }  // that is under way, from 1 on
  bool is_waiting(uint32_t worker) const { return workers_[worker].waits; }
  bool is_out(uint32_t worker) const { return workers_[worker].out; }
  // Whether it may be at a step.
  bool is_at_step(uint32_t worker) const {
    return workers_[worker].active && !workers_[worker].waits;
  }
  const Counters& counters() const { return counters_; }
  const std::vector<Step>& recorded() const { return recorded_; }

 private:
  struct Worker {
    bool active = false;  // begun, and not paused
    bool waits = false;
    bool out = false;
    bool late = false;         // out, and has answered since
    bool stood_still = false;  // others went on in its latest step, which was not measured
    bool has_gone_on = false;  // since it began; when its first step did is not known
    bool measured = false;     // its expectations mean something
    uint64_t taken = 0;
    uint64_t granted = 0;
    double latest = 0;  // end of a step, or begin of the superstep
    double waits_since = 0;
    Expectation computing;
    Expectation communication;
    // Of the superstep under way, with SSP since all began:
    int64_t first = 0;    // steps taken before it
    double interval = 0;  // that a step is expected to take; 0 if nothing is

    double expected() const { return computing.seconds() + communication.seconds(); }
    int64_t since_first() const { return static_cast<int64_t>(taken) - first; }
  };

  // Whether others wait for it.
  static bool IsIn(const Worker& worker) { return worker.active && !worker.out; }
  void Measure(Worker* worker, double now, double communication, double held_up);
  // It has answered again.
  void ComeBack(uint32_t number, Orders* orders);
  // Lets workers go on that need not wait any more.
  void Proceed(double now, Orders* orders);
  void BeginSuperstep(double now, Orders* orders);
  void Plan(double now, const std::vector<uint32_t>& members);
  void GrantLead(double now, Orders* orders);
  // Steps of who has taken fewest; none if nobody is waited for.
  std::optional<int64_t> Slowest() const;
  void BeginToWait(Worker* worker, double now);
  void StopWaiting(Worker* worker, double now);
  // When it began what it does, at the latest.
  double Since(const Worker& worker) const {
    return std::max(excused_, worker.has_gone_on ? worker.latest : first_end_);
  }

  const Rules rules_;
  std::vector<Worker> workers_;
  size_t in_ = 0;       // workers that others wait for
  size_t waiting_ = 0;  // workers
  uint64_t superstep_ = 0;
  double superstep_began_ = 0;
  double predicted_wait_ = 0;  // at the barrier that ends it
  double first_end_ = 0;       // of a step of any worker, since all began
  double excused_ = 0;
  bool is_timed_ = false;  // the begin of this superstep is what workers' steps really began with
  Counters counters_;
  std::vector<Step> recorded_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_SCHEDULER_H_
