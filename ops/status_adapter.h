// Converts the runtime's Status to TensorFlow's, which is absl's.

#ifndef TREPAK_OPS_STATUS_ADAPTER_H_
#define TREPAK_OPS_STATUS_ADAPTER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Keeps code and message. Thread safety: may be called from many threads at once, as the others.
inline absl::Status ToAbslStatus(const Status& status) {
  // The two enums agree by value (status_adapter_test.cc holds them to it).
  return absl::Status(static_cast<absl::StatusCode>(status.code()),
                      absl::string_view(status.message().data(), status.message().size()));
}

// An error of the one code that the Python side turns into HorovodInternalError; but not for what
// is not there at all, which no other try would bring.
inline absl::Status ToFlowError(const Status& status) {
  const std::string message(status.message());
  if (status.code() == StatusCode::kNotFound) {
    return absl::NotFoundError("trepak: " + message);
  }
  const bool is_horovods = message.rfind("Horovod: ", 0) == 0;
  return status.ok() ? absl::OkStatus()
                     : absl::UnknownError((is_horovods ? "" : "trepak's flows: ") + message);
}

}  // namespace trepak

#endif  // TREPAK_OPS_STATUS_ADAPTER_H_
