// Sessions of all systems: open, connect, close.

#include "ops/session_ops.h"

#include <algorithm>
#include <chrono>

#include "tensorflow/core/framework/op.h"

namespace trepak {
namespace {

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

// Has this rank's share of a system listen. Returns, by the system's parts, where others reach this
// rank's; empty where it has none.
absl::Status OpenSession(const Arguments& given, Json* addresses) {
  const auto system = given.Get<std::string>("system");
  const auto number = given.Get<uint32_t>("session");
  const auto options = given.Get<Json>("options");
  const auto secret = given.Get<std::vector<uint8_t>>("secret");
  Sessions& sessions = Sessions::Global();
  return WithoutThrowing("the options of " + system, [&] {
    JobOptions job = JobFrom(options.at("job"));
    if (secret.size() != job.secret.size()) {
      return absl::InvalidArgumentError("the secret must be 32 bytes");
    }
    std::copy(secret.begin(), secret.end(), job.secret.begin());
    const Status status = sessions.Open(system, number, job, options);
    if (status.ok()) {
      *addresses = sessions.Find(system, number)->addresses();
    }
    // Options that are wrong are no other rank's failure.
    return status.code() == StatusCode::kInvalidArgument
               ? absl::InvalidArgumentError("trepak: " + std::string(status.message()))
               : ToFlowError(status);
  });
}

// Opens this rank's flows. addresses: by rank, what OpenSession has returned there.
absl::Status ConnectSession(const Arguments& given, Json*) {
  const auto system = given.Get<std::string>("system");
  const auto by_rank = given.Get<std::vector<Session::Addresses>>("addresses");
  const auto session = Sessions::Global().Find(system, given.Get<uint32_t>("session"));
  if (session == nullptr) {
    return ToFlowError(Sessions::Global().NotOpen(system));
  }
  std::vector<Session::Addresses> by_part(by_rank.at(0).size());
  for (const Session::Addresses& addresses : by_rank) {
    for (size_t part = 0; part < by_part.size(); ++part) {
      by_part[part].push_back(addresses.at(part));
    }
  }
  return ToFlowError(session->Connect(by_part));
}

// Ends its threads and flows; what waits fails. Others get time to end as well.
absl::Status CloseSession(const Arguments& given, Json*) {
  const auto patience = std::chrono::milliseconds(given.Get<int64_t>("patience_milliseconds"));
  if (const auto session = Sessions::Global().Find(given.Get<std::string>("system"),
                                                   given.Get<uint32_t>("session"))) {
    session->Close(patience);
  }
  return absl::OkStatus();
}

absl::Status GetStatistics(const Arguments& given, Json* statistics) {
  const auto system = given.Get<std::string>("system");
  const System* const how = Sessions::Global().FindSystem(system);
  const auto session = Sessions::Global().Find(system, given.Get<uint32_t>("session"));
  *statistics = Json::object();
  if (how != nullptr && how->statistics != nullptr) {
    *statistics =
        session == nullptr ? how->statistics(Session(how->name)) : how->statistics(*session);
  }
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"open_session", OpenSession},
                                                         {"connect_session", ConnectSession},
                                                         {"close_session", CloseSession},
                                                         {"session_statistics", GetStatistics}});

// Ends an op with the tensors in a buffer, or with an error.
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

class ActOp : public tensorflow::AsyncOpKernel {
 public:
  explicit ActOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    int64_t number = 0;
    std::string action;
    OP_REQUIRES_OK(context, context->GetAttr("system", &system_));
    OP_REQUIRES_OK(context, context->GetAttr("session", &number));
    number_ = static_cast<uint32_t>(number);
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
  std::string system_;
  uint32_t number_ = 0;
  System::Action action_;
  Packed packed_;
};

REGISTER_KERNEL_BUILDER(Name("TrepakAct").Device(tensorflow::DEVICE_CPU), ActOp);

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

Packed PackedFrom(const Json& options) {
  std::vector<tensorflow::TensorShape> shapes;
  for (const Json& shape : options.at("shapes")) {
    shapes.emplace_back(tensorflow::TensorShape(shape.get<std::vector<int64_t>>()));
  }
  const bool wide = options.at("dtype").get<std::string>() == "float64";
  return Packed(wide ? tensorflow::DT_DOUBLE : tensorflow::DT_FLOAT, shapes);
}

Status CarrierFrom(const Json& options, const std::string& what, Carrier* carrier) {
  const auto name = options.at("transport").get<std::string>();
  if (name != "flows" && name != "auto" && name != "ucx") {
    return InvalidArgumentError(what + "'s transport is flows, auto or ucx, not " + name);
  }
  *carrier = name == "flows" ? Carrier::kFlows : name == "auto" ? Carrier::kAuto : Carrier::kUcx;
  return OkStatus();
}

}  // namespace trepak
