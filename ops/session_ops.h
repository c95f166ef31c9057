// Sessions as TensorFlow ops know them: by system and number, opened with options as JSON.

#ifndef TREPAK_OPS_SESSION_OPS_H_
#define TREPAK_OPS_SESSION_OPS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls.h"
#include "ops/packed.h"
#include "ops/runtime/net/session.h"
#include "ops/status_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

// How a session of a system is made. Python's dataclass declares the options, with their defaults,
// and has checked them; what is missing or of another type here is an error that names it.
struct System {
  struct Opening {
    const JobOptions& job;
    const Json& options;
    uint32_t number;    // the session's
    uint32_t openings;  // before this one, on all ranks alike
    std::shared_ptr<const Session> session;
  };

  // As users know it.
  std::string name;
  // Makes the parts that this rank has. What it throws, of Json, becomes an error.
  std::function<Status(const Opening&, Session::Parts*)> make;
  // What has been counted, by names with units; of a session that is not open, zeros or nothing.
  std::function<Json(const Session&)> statistics;
  // What steps do with the first part of a session, by name: takes the values of tensors in one
  // buffer, or nothing, and answers when it is done, in any thread, with values to go on from, or
  // nothing. Must not block.
  using Done = std::function<void(const Status&, const Payload&)>;
  using Action = std::function<void(std::shared_ptr<Endpoint> worker, Payload values, Done done)>;
  std::map<std::string, Action> actions;
};

// The systems of this library, and their sessions in this process; those never go, but are closed.
//
// Thread safety: every method may be called from any thread.
class Sessions {
 public:
  static Sessions& Global();

  // At start-up.
  bool Register(const std::string& system, System how);

  // Opens one, which must not be open.
  Status Open(const std::string& system, uint32_t number, const JobOptions& job,
              const Json& options);

  // Null if there has been none.
  std::shared_ptr<Session> Find(const std::string& system, uint32_t number) const;

  // That it does not run.
  Status NotOpen(const std::string& system) const;

  // Null if there is none of that name; else it stays.
  const System* FindSystem(const std::string& system) const;

 private:
  struct Entry {
    std::shared_ptr<Session> session;
    uint32_t openings = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::string, System> systems_;                      // Guarded by mutex_; none goes.
  std::map<std::pair<std::string, uint32_t>, Entry> entries_;  // Guarded by mutex_.
};

// Where the tensors of which a session's options have the dtype and shapes lie in one buffer.
Packed PackedFrom(const Json& options);

// Reads what carries messages, of `what`, by the option and the names that users know: transport.
Status CarrierFrom(const Json& options, const std::string& what, Carrier* carrier);

// An op of the worker that is the first part of a system's session. Worker::kSystem: its name.
template <typename Worker>
class SessionOp : public tensorflow::OpKernel {
 public:
  explicit SessionOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    int64_t number = 0;
    OP_REQUIRES_OK(context, context->GetAttr("session", &number));
    number_ = static_cast<uint32_t>(number);
  }

 protected:
  // Null if the session is not open.
  std::shared_ptr<Worker> Find() const {
    const auto session = Sessions::Global().Find(Worker::kSystem, number_);
    return session == nullptr ? nullptr : session->template Find<Worker>(0);
  }

  // Null, with the op's error set, if the session is not open.
  std::shared_ptr<Worker> FindOrFail(tensorflow::OpKernelContext* context) const {
    const std::shared_ptr<Worker> worker = Find();
    if (worker == nullptr) {
      context->CtxFailure(ToFlowError(Sessions::Global().NotOpen(Worker::kSystem)));
    }
    return worker;
  }

 private:
  uint32_t number_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_SESSION_OPS_H_
