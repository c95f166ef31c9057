// RNA's engine: start, connect, count, stop.

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ops/engine_ops.h"
#include "ops/job_attributes.h"
#include "ops/led_ops.h"
#include "ops/packed.h"
#include "ops/rna_ops.h"
#include "tensorflow/core/framework/op.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakRnaStart")
    .Input("secret: string")
    .Output("addresses: string")
    .Attr("stream: int")
    .Attr("rank: int")
    .Attr("size: int")
    .Attr("host: string")
    .Attr("deadline_milliseconds: int")
    .Attr("encrypt: bool = false")
    .Attr("dscp: list(int)")
    .Attr("members: list(int)")
    .Attr("process_set: int")
    .Attr("period: int")
    .Attr("parameters: int")
    .Attr("choices: int")
    .Attr("quorum: int")
    .Attr("seed: int")
    .Attr("staleness: int")
    .Attr("sums: bool")
    .Attr("aligned: bool")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn(VectorOf<2>)
    .Doc(R"doc(
Starts RNA for one optimizer. addresses: [2], of this rank's worker, and of the controller, or empty.

members: ranks of this one's group.
process_set: Horovod's, of the group.
period: rounds from one exchange of the groups to the next; 0 if there is but one group.
parameters: the key of the job's parameters; -1 if groups don't share any.
shapes: of the gradients.
)doc");

REGISTER_OP("TrepakRnaConnect")
    .Input("controller: string")
    .Input("workers: string")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Opens this rank's flows; the workers' addresses are by rank.");

REGISTER_OP("TrepakRnaStop")
    .Attr("stream: int")
    .Attr("patience_milliseconds: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends RNA's threads and flows; what waits fails. Others get time to end as well.");

REGISTER_OP("TrepakRnaCounters")
    .Output("counters: int64")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(VectorOf<10>)
    .Doc("Says what RNA has done on this rank; see RnaWorker::Counters, in its order.");

// The library beside this one that drives Horovod's core; Python has loaded it, after Horovod.
Status MakeReducer(const std::string& name, int process_set,
                   std::shared_ptr<RoundReducer>* reducer) {
  using Make = RoundReducer* (*)(const char*, int32_t);
  const auto make = reinterpret_cast<Make>(dlsym(RTLD_DEFAULT, "TrepakHorovodReducer"));
  if (make == nullptr) {
    return NotFoundError("the library that drives Horovod's core is not loaded");
  }
  reducer->reset(make(name.c_str(), process_set));
  return OkStatus();
}

class RnaStartOp : public RnaOp {
 public:
  explicit RnaStartOp(tensorflow::OpKernelConstruction* context) : RnaOp(context) {
    const auto number = [context](const char* name) {
      int64_t value = 0;
      context->CtxFailure(context->GetAttr(name, &value));
      return value;
    };
    OP_REQUIRES_OK(context, JobFromAttributes(context, &options_.job));
    options_.controller.choices = static_cast<uint32_t>(number("choices"));
    options_.controller.quorum = static_cast<uint32_t>(number("quorum"));
    options_.controller.seed = static_cast<uint64_t>(number("seed"));
    options_.worker.staleness = static_cast<uint64_t>(number("staleness"));
    bool sums = false;
    OP_REQUIRES_OK(context, context->GetAttr("sums", &sums));
    using Combine = RnaContributions::Combine;
    OP_REQUIRES_OK(context, context->GetAttr("aligned", &options_.worker.aligned));
    options_.worker.combine = sums ? Combine::kSum : Combine::kByVersion;
    std::vector<int> members;
    OP_REQUIRES_OK(context, context->GetAttr("members", &members));
    OP_REQUIRES(context, !members.empty() && number("period") >= 0,
                absl::InvalidArgumentError("a group needs members, and a period"));
    options_.controller.members.assign(members.begin(), members.end());
    options_.worker.members = static_cast<uint32_t>(members.size());
    options_.worker.leads = options_.job.rank == options_.controller.members.front();
    options_.worker.exchange.period = static_cast<uint64_t>(number("period"));
    options_.worker.exchange.ranks = static_cast<uint32_t>(members.size());
    options_.worker.row = static_cast<int>(number("stream"));
    process_set_ = static_cast<int>(number("process_set"));
    parameters_ = number("parameters");
    Packed packed;
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed));
    options_.worker.type = packed.type();
    options_.worker.elements = packed.elements();
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    RnaEngine::Options options = options_;
    OP_REQUIRES_OK(context, SecretFrom(context->input(0), &options.job));
    OP_REQUIRES_OK(context, ToFlowError(MakeReducer("trepak_rna_" + std::to_string(stream()),
                                                    process_set_, &options.reducer)));
    if (parameters_ >= 0) {
      OP_REQUIRES_OK(context,
                     ToFlowError(ServeParameters(
                         static_cast<uint32_t>(parameters_), options.worker.type, options.job.size,
                         {{options.worker.elements, Late}}, &options.global)));
    }
    OP_REQUIRES_OK(context, ToFlowError(engine().Start(options)));
    OutputAddresses(context, engine());
  }

 private:
  RnaEngine::Options options_;
  int process_set_ = 0;
  int64_t parameters_ = -1;
};

class RnaCountersOp : public RnaOp {
 public:
  using RnaOp::RnaOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<RnaWorker> worker = engine().worker();
    const RnaWorker::Counters c = worker == nullptr ? RnaWorker::Counters{} : worker->counters();
    OutputCounters(context,
                   {c.rounds, c.contributed, c.gradients, c.dropped, c.not_finite, c.staleness,
                    c.contributors, c.steps, c.step_nanoseconds, c.copy_nanoseconds});
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakRnaStart").Device(tensorflow::DEVICE_CPU), RnaStartOp);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaConnect").Device(tensorflow::DEVICE_CPU),
                        LedConnectOp<RnaEngine>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaStop").Device(tensorflow::DEVICE_CPU),
                        StreamStopOp<RnaEngine>);
REGISTER_KERNEL_BUILDER(Name("TrepakRnaCounters").Device(tensorflow::DEVICE_CPU), RnaCountersOp);

}  // namespace
}  // namespace trepak
