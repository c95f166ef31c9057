// What ops of systems share that have a worker on each rank and a controller on one of them.

#ifndef TREPAK_OPS_LED_OPS_H_
#define TREPAK_OPS_LED_OPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/job_attributes.h"
#include "ops/packed.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/runtime/parameters/engine.h"
#include "ops/runtime/parameters/global_parameters.h"
#include "ops/stream_ops.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

// The addresses of this rank's worker, and of the controller, or empty: [2].
template <typename Engine>
void OutputAddresses(tensorflow::OpKernelContext* context, const Engine& engine) {
  tensorflow::Tensor* addresses = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(0, {2}, &addresses));
  addresses->vec<tensorflow::tstring>()(0) = engine.worker_address();
  addresses->vec<tensorflow::tstring>()(1) = engine.controller_address();
}

// Opens a rank's flows.
template <typename Engine>
class LedConnectOp : public StreamOp<Engine> {
 public:
  using StreamOp<Engine>::StreamOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const auto controller = context->input(0).scalar<tensorflow::tstring>();
    OP_REQUIRES_OK(context, ToFlowError(this->engine().Connect(std::string(controller()),
                                                               Strings(context->input(1)))));
  }
};

// Waits in one of the worker's threads, or the parameter client's.
template <typename Engine>
class LedWaitOp : public StreamOp<Engine, tensorflow::AsyncOpKernel> {
 public:
  using Worker = typename Engine::WorkerType;
  using StreamOp<Engine, tensorflow::AsyncOpKernel>::StreamOp;

  void ComputeAsync(tensorflow::OpKernelContext* context,
                    tensorflow::AsyncOpKernel::DoneCallback done) override {
    const std::shared_ptr<Worker> worker = this->engine().worker();
    OP_REQUIRES_OK_ASYNC(
        context, ToFlowError(worker == nullptr ? this->engine().NotRunning() : OkStatus()), done);
    Wait(context, worker.get(), End(context, std::move(done), worker));
  }

 protected:
  virtual void Wait(tensorflow::OpKernelContext* context, Worker* worker,
                    typename Worker::Callback callback) = 0;
};

// Waits for one thing.
template <typename Engine, auto kAwait>
class LedAwaitOp : public LedWaitOp<Engine> {
 public:
  using LedWaitOp<Engine>::LedWaitOp;

 protected:
  void Wait(tensorflow::OpKernelContext*, typename Engine::WorkerType* worker,
            typename Engine::WorkerType::Callback callback) override {
    (worker->*kAwait)(std::move(callback));
  }
};

// Hands what its inputs hold to the worker, and waits until it has arrived where it belongs.
template <typename Engine, auto kTake>
class LedTakeOp : public LedWaitOp<Engine> {
 public:
  using LedWaitOp<Engine>::LedWaitOp;

 protected:
  void Wait(tensorflow::OpKernelContext* context, typename Engine::WorkerType* worker,
            typename Engine::WorkerType::Callback callback) override {
    (worker->*kTake)(PackInputs(context, 0, context->num_inputs()), std::move(callback));
  }
};

// Outputs the job's parameters, and counts the samples that the worker has heard of.
template <typename Engine>
class LedFetchOp : public LedWaitOp<Engine> {
 public:
  using Worker = typename Engine::WorkerType;

  explicit LedFetchOp(tensorflow::OpKernelConstruction* context) : LedWaitOp<Engine>(context) {
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
  const std::shared_ptr<ParameterClient> client = Engine::Global().client();
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

#endif  // TREPAK_OPS_LED_OPS_H_
