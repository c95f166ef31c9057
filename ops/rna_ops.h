// What RNA's ops share.

#ifndef TREPAK_OPS_RNA_OPS_H_
#define TREPAK_OPS_RNA_OPS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "horovod_ext/runtime/rna_engine.h"
#include "horovod_ext/runtime/streams.h"
#include "ops/engine_ops.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

class RnaOp : public tensorflow::OpKernel {
 public:
  explicit RnaOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("stream", &stream_));
  }

 protected:
  RnaEngine& engine() const { return EngineOf<RnaEngine>(static_cast<uint32_t>(stream_)); }
  // Of its collectives, the same on all ranks.
  std::string engine_name() const { return "trepak_rna_" + std::to_string(stream_); }

 private:
  int stream_ = 0;
};

inline Status NotRunning() {
  return NotFoundError("RNA does not run; DistributedOptimizer(sync=trepak.RNA()) starts it");
}

// Waits in one of the worker's threads.
class RnaWaitOp : public tensorflow::AsyncOpKernel {
 public:
  explicit RnaWaitOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("stream", &stream_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<RnaWorker> worker =
        EngineOf<RnaEngine>(static_cast<uint32_t>(stream_)).worker();
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(worker == nullptr ? NotRunning() : OkStatus()), done);
    // Its holding the worker has it live until then.
    Wait(context, worker.get(), [context, done, worker](const Status& status) {
      if (!status.ok()) {
        context->SetStatus(ToFlowError(status));
      }
      done();
    });
  }

 protected:
  virtual void Wait(tensorflow::OpKernelContext* context, RnaWorker* worker,
                    RnaWorker::Callback callback) = 0;

 private:
  int stream_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RNA_OPS_H_
