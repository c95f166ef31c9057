// What RNA's ops share.

#ifndef TREPAK_OPS_RNA_OPS_H_
#define TREPAK_OPS_RNA_OPS_H_

#include <memory>
#include <utility>

#include "horovod_ext/runtime/rna_engine.h"
#include "ops/engine_ops.h"
#include "ops/stream_ops.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

using RnaOp = StreamOp<RnaEngine>;

inline Status NotRunning() {
  return NotFoundError("RNA does not run; DistributedOptimizer(sync=trepak.RNA()) starts it");
}

// Waits in one of the worker's threads.
class RnaWaitOp : public StreamOp<RnaEngine, tensorflow::AsyncOpKernel> {
 public:
  using StreamOp::StreamOp;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<RnaWorker> worker = engine().worker();
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(worker == nullptr ? NotRunning() : OkStatus()), done);
    Wait(context, worker.get(), End(context, std::move(done), worker));
  }

 protected:
  virtual void Wait(tensorflow::OpKernelContext* context, RnaWorker* worker,
                    RnaWorker::Callback callback) = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RNA_OPS_H_
