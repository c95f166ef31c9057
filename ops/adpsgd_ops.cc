// AD-PSGD, as a system, and its ops.

#include <cstdint>
#include <memory>
#include <utility>

#include "ops/op_helpers.h"
#include "ops/packed.h"
#include "ops/runtime/adpsgd/adpsgd_peer.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/session_ops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {
namespace {

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
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc("Returns this rank's parameters, and counts the samples that all ranks have taken.");

REGISTER_OP("TrepakAdpsgdSettle")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Waits until no averaging that this rank began is on its way.");

using AdpsgdOp = SessionOp<AdpsgdPeer>;

// Hands its inputs to the peer.
class AdpsgdValuesOp : public AdpsgdOp {
 public:
  using AdpsgdOp::AdpsgdOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<AdpsgdPeer> peer = FindOrFail(context);
    if (peer == nullptr) {
      return;
    }
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
    const std::shared_ptr<AdpsgdPeer> peer = FindOrFail(context);
    if (peer == nullptr) {
      return;
    }
    Payload values;
    OP_REQUIRES_OK(context, ToFlowError(peer->Load(&values)));
    packed_.Output(values, context);
    SampleBudget::Global().Count(peer->TakeSamples());
  }

 private:
  Packed packed_;
};

class AdpsgdSettleOp : public SessionOp<AdpsgdPeer, tensorflow::AsyncOpKernel> {
 public:
  using SessionOp::SessionOp;
  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<AdpsgdPeer> peer = FindOrFail(context);
    if (peer == nullptr) {
      done();
      return;
    }
    peer->Settle(End(context, std::move(done), peer));
  }
};

Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Packed packed = PackedFrom(opening.options);
  const Endpoint::Options about = opening.job.endpoint();
  AdpsgdPeer::Rules rules;
  rules.type = packed.type();
  rules.elements = packed.elements();
  rules.seed = opening.options.at("seed").get<uint64_t>();
  Session::Part part;
  part.endpoint = std::make_shared<AdpsgdPeer>(about, rules, std::make_shared<ErrorLatch>());
  for (uint32_t rank = 0; rank < about.size; ++rank) {
    if (rank != about.rank) {  // nobody averages with himself
      part.members.push_back(rank);
    }
  }
  part.dscp = {opening.job.dscp.back()};
  parts->push_back(std::move(part));
  return OkStatus();
}

Json Statistics(const Session& session) {
  const auto peer = session.Find<AdpsgdPeer>(0);
  const AdpsgdPeer::Counters c = peer == nullptr ? AdpsgdPeer::Counters{} : peer->counters();
  return {{"averagings", c.averagings}, {"steps", c.steps}};
}

[[maybe_unused]] const bool kRegistered =
    Sessions::Global().Register(AdpsgdPeer::kSystem, {"AD-PSGD", Make, Statistics});

REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdAssign").Device(tensorflow::DEVICE_CPU),
                        AdpsgdTakeOp<&AdpsgdPeer::Assign>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdShow").Device(tensorflow::DEVICE_CPU),
                        AdpsgdTakeOp<&AdpsgdPeer::Show>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdAdd").Device(tensorflow::DEVICE_CPU), AdpsgdAddOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdBring").Device(tensorflow::DEVICE_CPU),
                        AdpsgdTakeOp<&AdpsgdPeer::Bring>);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdLoad").Device(tensorflow::DEVICE_CPU), AdpsgdLoadOp);
REGISTER_KERNEL_BUILDER(Name("TrepakAdpsgdSettle").Device(tensorflow::DEVICE_CPU), AdpsgdSettleOp);

}  // namespace
}  // namespace trepak
