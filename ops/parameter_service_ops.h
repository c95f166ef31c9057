// What ops share: how errors become TensorFlow's, and the client of the parameter servers.

#ifndef TREPAK_OPS_PARAMETER_SERVICE_OPS_H_
#define TREPAK_OPS_PARAMETER_SERVICE_OPS_H_

#include <memory>
#include <string>

#include "ops/runtime/net/status.h"
#include "ops/runtime/parameters/parameter_service.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace trepak {

inline absl::Status NoOutputs(tensorflow::shape_inference::InferenceContext*) {
  return absl::OkStatus();
}

// An error of the one code that the Python side turns into HorovodInternalError; but not for what
// is not there at all, which no other try would bring.
inline absl::Status ToFlowError(const Status& status) {
  if (status.code() == StatusCode::kNotFound) {
    return absl::NotFoundError("trepak: " + std::string(status.message()));
  }
  const std::string message(status.message());
  const bool is_horovods = message.rfind("Horovod: ", 0) == 0;
  return status.ok() ? absl::OkStatus()
                     : absl::UnknownError((is_horovods ? "" : "trepak's flows: ") + message);
}

// This process's client of the parameter servers; null, with `status`, if they don't run.
inline std::shared_ptr<ParameterClient> FindClient(Status* status) {
  std::shared_ptr<ParameterClient> client = ParameterService::Global().client();
  *status = client == nullptr
                ? NotFoundError(
                      "the job's parameter servers do not run: Horovod was shut down, or "
                      "an elastic job has no TensorFlowKerasState with its "
                      "optimizer")
                : OkStatus();
  return client;
}

}  // namespace trepak

#endif  // TREPAK_OPS_PARAMETER_SERVICE_OPS_H_
