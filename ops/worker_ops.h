// What ops of systems share that have a worker on each rank and a coordinator on one of them.

#ifndef TREPAK_OPS_WORKER_OPS_H_
#define TREPAK_OPS_WORKER_OPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/op_helpers.h"
#include "ops/packed.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/runtime/parameters/global_parameters.h"
#include "ops/runtime/parameters/parameter_service.h"
#include "ops/session_ops.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

enum : size_t { kWorkerPart, kCoordinatorPart };

// The parts of such a system: a worker on each of the members, a coordinator on the first; null
// where this rank has none.
inline Session::Parts WorkerAndCoordinator(std::shared_ptr<Endpoint> worker,
                                           std::shared_ptr<Endpoint> coordinator,
                                           const std::vector<uint32_t>& members,
                                           const JobOptions& job) {
  const std::vector<int> dscp = {job.dscp.front()};  // small messages that everybody waits for
  Session::Parts parts(2);
  parts[kWorkerPart] = {std::move(worker), kCoordinatorPart, {members.front()}, dscp};
  parts[kCoordinatorPart] = {std::move(coordinator), kWorkerPart, members, dscp};
  return parts;
}

// The actions below call a method of the worker, which they keep alive until it has answered.

// One that waits for something: kMethod(callback).
template <typename Worker, auto kMethod>
void Awaiting(std::shared_ptr<Endpoint> worker, Payload, System::Done done) {
  auto* const own = static_cast<Worker*>(worker.get());
  (own->*kMethod)([worker = std::move(worker), done = std::move(done)](const Status& status) {
    done(status, Payload());
  });
}

// One that takes values, and waits until they have arrived where they belong:
// kMethod(values, callback).
template <typename Worker, auto kMethod>
void Taking(std::shared_ptr<Endpoint> worker, Payload values, System::Done done) {
  auto* const own = static_cast<Worker*>(worker.get());
  (own->*kMethod)(std::move(values), [worker = std::move(worker), done = std::move(done)](
                                         const Status& status) { done(status, Payload()); });
}

// One that takes values at once: kMethod(values) returns whether it could.
template <typename Worker, auto kMethod>
void Handing(const std::shared_ptr<Endpoint>& worker, const Payload& values,
             const System::Done& done) {
  done((static_cast<Worker*>(worker.get())->*kMethod)(values), Payload());
}

// What ends an action with values to go on from; counts the samples that the worker has heard of.
template <typename Worker>
System::Done CountingSamples(std::shared_ptr<Worker> worker, System::Done done) {
  return [worker = std::move(worker), done = std::move(done)](const Status& status,
                                                              const Payload& values) {
    if (status.ok()) {
      SampleBudget::Global().Count(worker->TakeSamples());
    }
    done(status, values);
  };
}

// One that returns the job's parameters: Fetch(callback).
template <typename Worker>
void Fetching(const std::shared_ptr<Endpoint>& worker, const Payload&, System::Done done) {
  const auto own = std::static_pointer_cast<Worker>(worker);
  own->Fetch(CountingSamples(own, std::move(done)));
}

// Gives a job parameters on its parameter servers, under this key and the next ones.
inline Status ServeParameters(uint32_t key, ElementType type, uint32_t size,
                              std::vector<ServedParameters::Part> parts,
                              std::shared_ptr<GlobalParameters>* global) {
  Status status;
  const std::shared_ptr<ParameterClient> client = ParameterService::Global().client(&status);
  if (client == nullptr) {
    return FailedPreconditionError(std::string(status.message()));  // the session can't be opened
  }
  VariableTable& table = VariableTable::Global();
  TREPAK_RETURN_IF_ERROR(table.Add({key, "the job's samples", ElementType::kFloat64, 1}));
  for (size_t i = 0; i < parts.size(); ++i) {
    TREPAK_RETURN_IF_ERROR(
        table.Add({key + 1 + static_cast<uint32_t>(i),
                   "the job's parameters, part " + std::to_string(i), type, parts[i].elements}));
  }
  *global = std::make_shared<ServedParameters>(client, key, type, size, std::move(parts));
  return OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_WORKER_OPS_H_
