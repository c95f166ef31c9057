// What the ops of the native engine share.

#ifndef TREPAK_OPS_ENGINE_OPS_H_
#define TREPAK_OPS_ENGINE_OPS_H_

#include <string>

#include "horovod_ext/runtime/status.h"
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
  return status.ok() ? absl::OkStatus()
                     : absl::UnknownError("trepak's flows: " + std::string(status.message()));
}

}  // namespace trepak

#endif  // TREPAK_OPS_ENGINE_OPS_H_
