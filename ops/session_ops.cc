// Sessions of all systems: open, connect, close.

#include "ops/session_ops.h"

#include <algorithm>
#include <chrono>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {
namespace {

REGISTER_OP("TrepakOpenSession")
    .Input("secret: string")
    .Output("addresses: string")
    .Attr("system: string")
    .Attr("session: int")
    .Attr("options: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(
          0, context->Vector(tensorflow::shape_inference::InferenceContext::kUnknownDim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Has this rank's share of a system listen.

addresses: by the system's parts, where others reach this rank's; empty where it has none.
secret: 32 bytes that only this job knows.
options: JSON: `job`, this process's place in it, and the system's own.
)doc");

REGISTER_OP("TrepakConnectSession")
    .Input("addresses: string")
    .Attr("system: string")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Opens this rank's flows. addresses: [ranks, parts].");

REGISTER_OP("TrepakCloseSession")
    .Attr("system: string")
    .Attr("session: int")
    .Attr("patience_milliseconds: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Ends its threads and flows; what waits fails. Others get time to end as well.");

REGISTER_OP("TrepakAct")
    .Input("values: types")
    .Output("made: num_made * T")
    .Attr("types: list({float, double}) >= 0")
    .Attr("num_made: int >= 0")
    .Attr("T: {float, double}")
    .Attr("shapes: list(shape)")
    .Attr("system: string")
    .Attr("session: int")
    .Attr("action: string")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute)
    .Doc(R"doc(
Does what a step does with a session, and ends when that is done; see System::actions.

made: of the attribute shapes.
)doc");

REGISTER_OP("TrepakSessionStatistics")
    .Output("statistics: string")
    .Attr("system: string")
    .Attr("session: int")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Says what has been counted on this rank, as JSON.");

JobOptions JobFrom(const Json& job) {
  JobOptions options;
  options.rank = job.at("rank").get<uint32_t>();
  options.size = job.at("size").get<uint32_t>();
  options.host = job.at("host").get<std::string>();
  options.encrypt = job.at("encrypt").get<bool>();
  options.deadline = std::chrono::milliseconds(job.at("deadline_milliseconds").get<int64_t>());
  options.dscp = job.at("dscp").get<std::vector<int>>();
  return options;
}

// What the ops share, kernels of type Kernel.
template <typename Kernel = tensorflow::OpKernel>
class AnySessionOp : public Kernel {
 public:
  explicit AnySessionOp(tensorflow::OpKernelConstruction* context) : Kernel(context) {
    int64_t number = 0;
    OP_REQUIRES_OK(context, context->GetAttr("system", &system_));
    OP_REQUIRES_OK(context, context->GetAttr("session", &number));
    number_ = static_cast<uint32_t>(number);
  }

 protected:
  std::string system_;
  uint32_t number_ = 0;
};

class OpenSessionOp : public AnySessionOp<> {
 public:
  explicit OpenSessionOp(tensorflow::OpKernelConstruction* context) : AnySessionOp(context) {
    std::string text;
    OP_REQUIRES_OK(context, context->GetAttr("options", &text));
    OP_REQUIRES_OK(context, ToOptionsError(WithoutThrowing(system_, [&] {
                     options_ = Json::parse(text);
                     job_ = JobFrom(options_.at("job"));
                     return OkStatus();
                   })));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    JobOptions job = job_;
    const tensorflow::tstring& secret = context->input(0).scalar<tensorflow::tstring>()();
    OP_REQUIRES(context, secret.size() == job.secret.size(),
                absl::InvalidArgumentError("the secret must be 32 bytes"));
    std::copy(secret.begin(), secret.end(), job.secret.begin());
    OP_REQUIRES_OK(context, ToOptionsError(WithoutThrowing(system_, [&] {
                     return Sessions::Global().Open(system_, number_, job, options_);
                   })));
    const Session::Addresses found = Sessions::Global().Find(system_, number_)->addresses();
    tensorflow::Tensor* addresses = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, {static_cast<int64_t>(found.size())}, &addresses));
    std::copy(found.begin(), found.end(), addresses->vec<tensorflow::tstring>().data());
  }

 private:
  Json options_;
  JobOptions job_;
};

class ConnectSessionOp : public AnySessionOp<> {
 public:
  using AnySessionOp::AnySessionOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    const std::shared_ptr<Session> session = Sessions::Global().Find(system_, number_);
    OP_REQUIRES_OK(context, ToFlowError(session == nullptr ? Sessions::Global().NotOpen(system_)
                                                           : OkStatus()));
    const auto given = context->input(0).matrix<tensorflow::tstring>();
    std::vector<Session::Addresses> addresses(static_cast<size_t>(given.dimension(1)));
    for (int64_t rank = 0; rank < given.dimension(0); ++rank) {
      for (size_t part = 0; part < addresses.size(); ++part) {
        addresses[part].emplace_back(given(rank, static_cast<int64_t>(part)));
      }
    }
    OP_REQUIRES_OK(context, ToFlowError(session->Connect(addresses)));
  }
};

class CloseSessionOp : public AnySessionOp<> {
 public:
  explicit CloseSessionOp(tensorflow::OpKernelConstruction* context) : AnySessionOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("patience_milliseconds", &patience_));
  }
  void Compute(tensorflow::OpKernelContext*) override {
    if (const std::shared_ptr<Session> session = Sessions::Global().Find(system_, number_)) {
      session->Close(std::chrono::milliseconds(patience_));
    }
  }

 private:
  int64_t patience_ = 0;
};

class ActOp : public AnySessionOp<tensorflow::AsyncOpKernel> {
 public:
  explicit ActOp(tensorflow::OpKernelConstruction* context) : AnySessionOp(context) {
    std::string action;
    OP_REQUIRES_OK(context, context->GetAttr("action", &action));
    OP_REQUIRES_OK(context, Packed::FromAttributes(context, &packed_));
    const System* const system = Sessions::Global().FindSystem(system_);
    const bool can = system != nullptr && system->actions.count(action) != 0;
    OP_REQUIRES(context, can, absl::NotFoundError("trepak: " + system_ + " can't do " + action));
    action_ = system->actions.at(action);
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const std::shared_ptr<Session> session = Sessions::Global().Find(system_, number_);
    const auto worker = session == nullptr ? nullptr : session->Find<Endpoint>(0);
    OP_REQUIRES_OK_ASYNC(
        context, ToFlowError(worker == nullptr ? Sessions::Global().NotOpen(system_) : OkStatus()),
        done);
    const int count = context->num_inputs();
    action_(worker, count == 0 ? Payload() : PackInputs(context, 0, count),
            [this, context, done = std::move(done)](const Status& status, const Payload& made) {
              Finish(context, packed_, status, made);
              done();
            });
  }

 private:
  System::Action action_;
  Packed packed_;
};

class SessionStatisticsOp : public AnySessionOp<> {
 public:
  using AnySessionOp::AnySessionOp;
  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* text = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &text));
    text->scalar<tensorflow::tstring>()() = Sessions::Global().Statistics(system_, number_).dump();
  }
};

REGISTER_KERNEL_BUILDER(Name("TrepakAct").Device(tensorflow::DEVICE_CPU), ActOp);
REGISTER_KERNEL_BUILDER(Name("TrepakOpenSession").Device(tensorflow::DEVICE_CPU), OpenSessionOp);
REGISTER_KERNEL_BUILDER(Name("TrepakConnectSession").Device(tensorflow::DEVICE_CPU),
                        ConnectSessionOp);
REGISTER_KERNEL_BUILDER(Name("TrepakCloseSession").Device(tensorflow::DEVICE_CPU), CloseSessionOp);
REGISTER_KERNEL_BUILDER(Name("TrepakSessionStatistics").Device(tensorflow::DEVICE_CPU),
                        SessionStatisticsOp);

}  // namespace

Sessions& Sessions::Global() {
  static auto* const sessions = new Sessions;  // their threads may end after all else
  return *sessions;
}

bool Sessions::Register(const std::string& system, System how) {
  std::lock_guard<std::mutex> lock(mutex_);
  return systems_.emplace(system, std::move(how)).second;
}

Status Sessions::Open(const std::string& system, uint32_t number, const JobOptions& job,
                      const Json& options) {
  const System* const how = FindSystem(system);
  if (how == nullptr) {
    return NotFoundError("there is no system " + system);
  }
  std::shared_ptr<Session> session;
  uint32_t openings = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = entries_[{system, number}];
    if (entry.session == nullptr) {
      entry.session = std::make_shared<Session>(how->name);
    }
    session = entry.session;
    openings = entry.openings++;
  }
  Session::Parts parts;
  TREPAK_RETURN_IF_ERROR(how->make({job, options, number, openings, session}, &parts));
  return session->Open(job, std::move(parts));
}

std::shared_ptr<Session> Sessions::Find(const std::string& system, uint32_t number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find({system, number});
  return found == entries_.end() ? nullptr : found->second.session;
}

const System* Sessions::FindSystem(const std::string& system) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = systems_.find(system);
  return found == systems_.end() ? nullptr : &found->second;
}

Status Sessions::NotOpen(const std::string& system) const {
  const System* const how = FindSystem(system);
  return Session(how == nullptr ? system : how->name).NotOpen();
}

void Finish(tensorflow::OpKernelContext* context, const Packed& packed, const Status& status,
            const Payload& values) {
  // Without TensorFlow's macros: the op may be an asynchronous one, which they abort.
  if (!status.ok()) {
    context->SetStatus(ToFlowError(status));
  } else if (packed.count() > 0 && values.size() != packed.bytes()) {
    context->SetStatus(absl::InvalidArgumentError(
        "trepak: this op's shapes have " + std::to_string(packed.bytes()) + " bytes, the values " +
        std::to_string(values.size())));
  } else {
    packed.Output(values, context);
  }
}

Json Sessions::Statistics(const std::string& system, uint32_t number) const {
  const System* const how = FindSystem(system);
  if (how == nullptr || how->statistics == nullptr) {
    return Json::object();
  }
  const std::shared_ptr<Session> session = Find(system, number);
  return session == nullptr ? how->statistics(Session(how->name)) : how->statistics(*session);
}

Packed PackedFrom(const Json& options) {
  std::vector<tensorflow::TensorShape> shapes;
  for (const Json& shape : options.at("shapes")) {
    shapes.emplace_back(tensorflow::TensorShape(shape.get<std::vector<int64_t>>()));
  }
  const bool wide = options.at("dtype").get<std::string>() == "float64";
  return Packed(wide ? tensorflow::DT_DOUBLE : tensorflow::DT_FLOAT, shapes);
}

}  // namespace trepak
