// Converts the runtime's Status to TensorFlow's, which is absl's.

#ifndef TREPAK_OPS_STATUS_ADAPTER_H_
#define TREPAK_OPS_STATUS_ADAPTER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Keeps code and message. Thread safety: may be called from many threads at once.
inline absl::Status ToAbslStatus(const Status& status) {
  // The two enums agree by value (status_adapter_test.cc holds them to it).
  return absl::Status(static_cast<absl::StatusCode>(status.code()),
                      absl::string_view(status.message().data(), status.message().size()));
}

}  // namespace trepak

#endif  // TREPAK_OPS_STATUS_ADAPTER_H_
