// A rank's side of ElasticBSP, SSP and ASP: what a step has changed goes to the parameter servers,
// and training goes on from what they have, when the coordinator lets it.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_WORKER_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ops/runtime/coordination/coordinated_worker.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_grants.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_metrics.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_step.h"
#include "ops/runtime/parameters/global_parameters.h"

namespace trepak {

// A step's change, times this rank's share of the job, is added to the job's parameters, and what
// these are then comes back. Whoever has taken as many steps as were granted waits for more; after
// a barrier all fetch the same parameters, and none pushes a change before all have.
//
// Thread safety: every method may be called from any thread; Step, Drain, Assign and Fetch one
// after the other's callback. Callbacks run in any thread, without a lock, and must not block. Each
// part has a lock of its own, and the worker has none.
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

  using Counters = ElasticBspMetrics::Counters;
  using Callback = std::function<void(const Status&)>;
  using ValuesCallback = ElasticBspStep::Callback;

  ElasticBspWorker(const Options& options, const Rules& rules, uint32_t coordinator,
                   std::shared_ptr<GlobalParameters> global, std::shared_ptr<ErrorLatch> errors)
      : CoordinatedWorker(options, coordinator, errors),
        type_(rules.type),
        global_(std::move(global)),
        step_(Me(), rules.type, rules.elements * SizeOf(rules.type), std::move(errors)),
        metrics_(rules.timeline, rules.row, coordinator) {}
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
  uint64_t TakeSamples() { return metrics_.TakeSamples(); }

  Counters counters() const { return metrics_.counters(); }

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override { step_.End(status); }

 private:
  using Progress = ElasticBspGrants::Progress;
  using Wait = ElasticBspGrants::Wait;

  // Takes the parameters that the servers answer, and goes on with `next`; or fails.
  GlobalParameters::Callback Receiving(Status (ElasticBspWorker::*next)(Clock::time_point now));
  Status Pushed(Clock::time_point now);
  Status Fetched(Clock::time_point now);
  void SayThatItDrains(const Status& status);
  Status Tell(MessageKind kind, uint64_t round = 0);
  // A wait has ended. `push`: what has waited at the gate.
  void GoOn(Wait waited, const ElasticBspGrants::Push& push);

  const ElementType type_;
  const std::shared_ptr<GlobalParameters> global_;
  ElasticBspStep step_;
  ElasticBspGrants grants_;
  ElasticBspMetrics metrics_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_WORKER_H_
