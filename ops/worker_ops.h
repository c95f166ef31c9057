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

// Waits in one of the worker's threads, or the parameter client's.
template <typename Worker>
class WorkerWaitOp : public SessionOp<Worker, tensorflow::AsyncOpKernel> {
 public:
  using SessionOp<Worker, tensorflow::AsyncOpKernel>::SessionOp;

  void ComputeAsync(tensorflow::OpKernelContext* context,
                    tensorflow::AsyncOpKernel::DoneCallback done) override {
    const std::shared_ptr<Worker> worker = this->FindOrFail(context);
    if (worker == nullptr) {
      done();
      return;
    }
    Wait(context, worker.get(), End(context, std::move(done), worker));
  }

 protected:
  virtual void Wait(tensorflow::OpKernelContext* context, Worker* worker,
                    typename Worker::Callback callback) = 0;
};

// Waits for one thing.
template <typename Worker, auto kAwait>
class WorkerAwaitOp : public WorkerWaitOp<Worker> {
 public:
  using WorkerWaitOp<Worker>::WorkerWaitOp;

 protected:
  void Wait(tensorflow::OpKernelContext*, Worker* worker,
            typename Worker::Callback callback) override {
    (worker->*kAwait)(std::move(callback));
  }
};

// Hands what its inputs hold to the worker, and waits until it has arrived where it belongs.
template <typename Worker, auto kTake>
class WorkerTakeOp : public WorkerWaitOp<Worker> {
 public:
  using WorkerWaitOp<Worker>::WorkerWaitOp;

 protected:
  void Wait(tensorflow::OpKernelContext* context, Worker* worker,
            typename Worker::Callback callback) override {
    (worker->*kTake)(PackInputs(context, 0, context->num_inputs()), std::move(callback));
  }
};

// Outputs the job's parameters, and counts the samples that the worker has heard of.
template <typename Worker>
class WorkerFetchOp : public WorkerWaitOp<Worker> {
 public:
  explicit WorkerFetchOp(tensorflow::OpKernelConstruction* context)
      : WorkerWaitOp<Worker>(context) {
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
  }

 protected:
  void Wait(tensorflow::OpKernelContext* context, Worker* worker,
            typename Worker::Callback callback) override {
    worker->Fetch(Output(context, worker, std::move(callback)));
  }

  typename Worker::ValuesCallback Output(tensorflow::OpKernelContext* context, Worker* worker,
                                         typename Worker::Callback callback) const {
    return [this, context, worker, callback = std::move(callback)](const Status& status,
                                                                   const Payload& values) {
      if (status.ok() && values.size() != packed_.bytes()) {
        callback(InvalidArgumentError("this op's shapes have " + std::to_string(packed_.bytes()) +
                                      " bytes, the parameters " + std::to_string(values.size())));
        return;
      }
      if (status.ok()) {
        packed_.Output(values, context);
        SampleBudget::Global().Count(worker->TakeSamples());
      }
      callback(status);
    };
  }

 private:
  Packed packed_;
};

// Gives a job parameters on its parameter servers, under this key and the next ones.
inline Status ServeParameters(uint32_t key, ElementType type, uint32_t size,
                              std::vector<ServedParameters::Part> parts,
                              std::shared_ptr<GlobalParameters>* global) {
  const std::shared_ptr<ParameterClient> client = ParameterService::Global().client();
  if (client == nullptr) {
    return FailedPreconditionError("the job's parameter servers don't run");
  }
  TREPAK_RETURN_IF_ERROR(client->Register(key, "the job's samples", ElementType::kFloat64, 1));
  for (size_t i = 0; i < parts.size(); ++i) {
    TREPAK_RETURN_IF_ERROR(client->Register(key + 1 + static_cast<uint32_t>(i),
                                            "the job's parameters, part " + std::to_string(i), type,
                                            static_cast<int64_t>(parts[i].elements)));
  }
  *global = std::make_shared<ServedParameters>(client, key, type, size, std::move(parts));
  return OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_WORKER_OPS_H_
