// AD-PSGD's ops: start, average, count, stop.

#include <cstdint>
#include <memory>
#include <utility>

#include "ops/engine_ops.h"
#include "ops/job_attributes.h"
#include "ops/packed.h"
#include "ops/runtime/adpsgd/adpsgd_engine.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/stream_ops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakAdpsgdStart")
    .Input("secret: string")
    .Output("address: string")
    .Attr("stream: int")
    .Attr("rank: int")
    .Attr("size: int")
    .Attr("host: string")
    .Attr("deadline_milliseconds: int")
    .Attr("encrypt: bool = false")
    .Attr("dscp: list(int)")
    .Attr("seed: int")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Starts AD-PSGD for one optimizer; the shapes are of the parameters.");

REGISTER_OP("TrepakAdpsgdConnect")
    .Input("addresses: string")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Opens this rank's flows; addresses are by rank.");

REGISTER_OP("TrepakAdpsgdStop")
    .Attr("stream: int")
    .Attr("patience_milliseconds: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends AD-PSGD's threads and flows; what waits fails. Others get time to end as well.");

TREPAK_REGISTER_VALUES_OP("TrepakAdpsgdAssign", "Sets this rank's parameters.");

TREPAK_REGISTER_VALUES_OP(
    "TrepakAdpsgdShow",
    "Says that training goes on from other values than this rank's parameters.");

TREPAK_REGISTER_VALUES_OP(
    "TrepakAdpsgdAdd",
    "Adds what training has made of the values it went on from, and begins to average.");

TREPAK_REGISTER_VALUES_OP("TrepakAdpsgdBring",
                          "Adds what was made of the values it went on from, other than a step.");

REGISTER_OP("TrepakAdpsgdLoad")
    .Output("values: num_values * T")
    .Attr("num_values: int >= 1")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc("Returns this rank's parameters, and counts the samples that all ranks have taken.");

REGISTER_OP("TrepakAdpsgdSettle")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Waits until no averaging that this rank began is on its way.");

REGISTER_OP("TrepakAdpsgdCounters")
    .Output("counters: int64")
    .Attr("stream: int")
    .SetIsStateful()
    .SetShapeFn(VectorOf<2>)
    .Doc("Says what AD-PSGD has done on this rank; see AdpsgdPeer::Counters, in its order.");

Status NotRunning() {
  return NotFoundError(
      "AD-PSGD does not run: Horovod was shut down, or no step of such an optimizer has been taken "
      "yet");
}

using AdpsgdOp = StreamOp<AdpsgdEngine>;

class AdpsgdStartOp : public AdpsgdOp {
 public:
  explicit AdpsgdStartOp(tensorflow::OpKernelConstruction* context) : AdpsgdOp(context) {
    OP_REQUIRES_OK(context, JobFromAttributes(context, &options_.job));
    int64_t seed = 0;
    OP_REQUIRES_OK(context, context->GetAttr("seed", &seed));
    Packed packed;
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed));
    options_.peer.type = packed.type();
    options_.peer.elements = packed.elements();
    options_.peer.seed = static_cast<uint64_t>(seed);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    AdpsgdEngine::Options options = options_;
    OP_REQUIRES_OK(context, SecretFrom(context->input(0), &options.job));
    OP_REQUIRES_OK(context, ToFlowError(engine().Start(options)));
    OutputScalar<tensorflow::tstring>(context, 0, engine().address());
  }

 private:
  AdpsgdEngine::Options options_;
};

class AdpsgdConnectOp : public AdpsgdOp {
 public:
  using AdpsgdOp::AdpsgdOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, ToFlowError(engine().Connect(Strings(context->input(0)))));
  }
};

// Hands its inputs to the peer.
class AdpsgdValuesOp : public AdpsgdOp {
 public:
  using AdpsgdOp::AdpsgdOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<AdpsgdPeer> peer = engine().peer();
    OP_REQUIRES_OK(context, ToFlowError(peer == nullptr ? NotRunning() : OkStatus()));
    const Payload values = PackInputs(context, 0, context->num_inputs());
    OP_REQUIRES_OK(context, ToFlowError(Hand(values, peer.get())));
  }

 protected:
  virtual Status Hand(const Payload& values, AdpsgdPeer* peer) = 0;
};

template <Status (AdpsgdPeer::*kTake)(const Payload&)>
class AdpsgdTakeOp : public AdpsgdValuesOp {
 public:
  using AdpsgdValuesOp::AdpsgdValuesOp;

 protected:
  Status Hand(const Payload& values, AdpsgdPeer* peer) override { return (peer->*kTake)(values); }
};

class AdpsgdAddOp : public AdpsgdValuesOp {
 public:
  using AdpsgdValuesOp::AdpsgdValuesOp;

 protected:
  Status Hand(const Payload& values, AdpsgdPeer* peer) override {
    return peer->Add(values, SampleBudget::Global().TakeDealt());
  }
};

class AdpsgdLoadOp : public AdpsgdOp {
 public:
  explicit AdpsgdLoadOp(tensorflow::OpKernelConstruction* context) : AdpsgdOp(context) {
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
  }
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<AdpsgdPeer> peer = engine().peer();
    Payload values;
    OP_REQUIRES_OK(context, ToFlowError(peer == nullptr ? NotRunning() : peer->Load(&values)));
    packed_.Output(values, context);
    SampleBudget::Global().Count(peer->TakeSamples());
  }

 private:
  Packed packed_;
};

class AdpsgdSettleOp : public StreamOp<AdpsgdEngine, tensorflow::AsyncOpKernel> {
 public:
  using StreamOp::StreamOp;
  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<AdpsgdPeer> peer = engine().peer();
    OP_REQUIRES_OK_ASYNC(context, ToFlowError(peer == nullptr ? NotRunning() : OkStatus()), done);
    peer->Settle(End(context, std::move(done), peer));
  }
};

class AdpsgdCountersOp : public AdpsgdOp {
 public:
  using AdpsgdOp::AdpsgdOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<AdpsgdPeer> peer = engine().peer();
    const AdpsgdPeer::Counters c = peer == nullptr ? AdpsgdPeer::Counters{} : peer->counters();
    OutputCounters(context, {c.averagings, c.steps});
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdStart").Device(tensorflow::DEVICE_CPU), AdpsgdStartOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdConnect").Device(tensorflow::DEVICE_CPU),
                        AdpsgdConnectOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdStop").Device(tensorflow::DEVICE_CPU),
                        StreamStopOp<AdpsgdEngine>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdAssign").Device(tensorflow::DEVICE_CPU),
                        AdpsgdTakeOp<&AdpsgdPeer::Assign>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdShow").Device(tensorflow::DEVICE_CPU),
                        AdpsgdTakeOp<&AdpsgdPeer::Show>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdAdd").Device(tensorflow::DEVICE_CPU), AdpsgdAddOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdBring").Device(tensorflow::DEVICE_CPU),
                        AdpsgdTakeOp<&AdpsgdPeer::Bring>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdLoad").Device(tensorflow::DEVICE_CPU), AdpsgdLoadOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdSettle").Device(tensorflow::DEVICE_CPU), AdpsgdSettleOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdCounters").Device(tensorflow::DEVICE_CPU),
                        AdpsgdCountersOp);

}  // namespace
}  // namespace trepak
