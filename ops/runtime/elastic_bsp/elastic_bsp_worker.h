// A rank's side of ElasticBSP, SSP and ASP: what a step has changed goes to the parameter servers,
// and training goes on from what they have, when the coordinator lets it.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_WORKER_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ops/runtime/coordination/coordinated_worker.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_messages.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/observe/timeline.h"
#include "ops/runtime/parameters/adopted_parameters.h"
#include "ops/runtime/parameters/global_parameters.h"

namespace trepak {

// A step's change, times this rank's share of the job, is added to the job's parameters, and what
// these are then comes back. Whoever has taken as many steps as were granted waits for more; after
// a barrier all fetch the same parameters, and none pushes a change before all have.
//
// Thread safety: every method may be called from any thread; Step, Drain, Assign and Fetch one
// after the other's callback. Callbacks run in any thread, without a lock, and must not block.
class ElasticBspWorker : public CoordinatedWorker,
                         public std::enable_shared_from_this<ElasticBspWorker> {
 public:
  static constexpr const char* kSystem = "elastic_bsp";

  struct Rules {
    ElementType type = ElementType::kFloat32;
    size_t elements = 0;                       // of all parameters together
    Timeline* timeline = &Timeline::Global();  // shows waiting; outlives the worker
    int row = 0;                               // of the timeline
  };

  // What has happened here so far.
  struct Counters {
    uint64_t steps = 0;
    uint64_t barriers = 0;              // that this rank has passed
    uint64_t met = 0;                   // ranks there, with this one, summed over barriers
    uint64_t not_finite = 0;            // steps that were left out
    uint64_t waiting_nanoseconds = 0;   // for other ranks: at barriers, their gates, and drains
    uint64_t exchange_nanoseconds = 0;  // for parameters
  };

  using Callback = std::function<void(const Status&)>;
  using ValuesCallback = std::function<void(const Status&, Payload)>;

  ElasticBspWorker(const Options& options, const Rules& rules, uint32_t coordinator,
                   std::shared_ptr<GlobalParameters> global, std::shared_ptr<ErrorLatch> errors)
      : CoordinatedWorker(options, coordinator, std::move(errors)),
        rules_(rules),
        global_(std::move(global)),
        adopted_(rules.type, bytes()) {}
  ~ElasticBspWorker() override { Stop(); }

  // Ends a step, which has made these values of those that it went on from, with so many samples.
  // Delivers what to go on from, when this rank may. `finite`: its gradients were; if they were
  // not, or the values are not, the step is left out, but its samples count.
  void Step(Payload values, uint64_t samples, bool finite, ValuesCallback callback);

  // Says that this rank takes no more steps, and waits until all ranks have said so. If `values`
  // are not what it goes on from, because a user has set weights, that counts as a change. Values
  // that are not finite fail all ranks.
  void Drain(const Payload& values, Callback callback);

  // Sets the job's parameters: one rank does, before all fetch them.
  void Assign(Payload values, Callback callback);

  // Delivers the job's parameters, to go on from.
  void Fetch(ValuesCallback callback);

  // Samples of all ranks that this one has heard of since the last call.
  uint64_t TakeSamples();

  Counters counters() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  // The step under way.
  enum class State {
    kNone,
    kClosed,      // waits until all have fetched the barrier's parameters
    kExchanging,  // its change is on its way, or what comes back
    kWaiting,     // until it may go on
    kFetching,    // parameters, after waiting
  };

  size_t bytes() const { return rules_.elements * SizeOf(rules_.type); }
  Status Check(const Payload& values) const;
  void Push();
  void Pushed(const Status& status, Payload values, uint64_t total);
  void Fetched(const Status& status, Payload values, uint64_t total);
  void GoOn();
  void SayThatItDrains(const Status& status);
  Status OnGrant(const elastic_bsp::Grant& grant);
  void OnOpen(const Header& header);
  Status OnDrained();
  // Require mutex_.
  Status CheckThatItIsFree() const;
  void LeaveOut();
  void Adopt(const Payload& values, uint64_t total);
  // Parameters have come, for which the step under way has waited since since_.
  void Arrived(Payload values, uint64_t total, Clock::time_point now);
  bool MayGoOn() const { return steps_ < granted_; }
  Message Stepped();
  // Waiting has ended: counts it, and shows it under this name.
  void EndWaiting(const std::string& name, bool at_barrier, Clock::time_point end);
  // Shows the superstep under way, which this rank has ended.
  void ShowSuperstep(Clock::time_point end) const;
  std::string NotYet() const;

  const Rules rules_;
  const std::shared_ptr<GlobalParameters> global_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  State state_ = State::kNone;
  Clock::time_point since_;  // of the state, or of the drain
  Clock::time_point heard_;  // of the coordinator
  Payload values_;           // of the step under way: to push, and then to go on from
  uint64_t step_samples_ = 0;
  ValuesCallback on_stepped_;
  Callback on_drained_;
  AdoptedParameters adopted_;
  uint64_t total_ = 0;  // samples of all ranks
  uint64_t taken_ = 0;  // of them, told by TakeSamples
  uint64_t steps_ = 0;
  uint64_t granted_ = 0;
  uint64_t superstep_ = 0;
  uint64_t steps_before_superstep_ = 0;
  Clock::time_point superstep_since_;
  uint64_t opened_ = 0;  // the last superstep whose parameters all have fetched
  bool is_gated_ = false;
  // Since the last step's end:
  std::chrono::nanoseconds communication_{0};
  std::chrono::nanoseconds held_up_{0};  // at a gate
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_WORKER_H_
