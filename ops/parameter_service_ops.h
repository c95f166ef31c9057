// The client of the parameter servers, as ops know it.

#ifndef TREPAK_OPS_PARAMETER_SERVICE_OPS_H_
#define TREPAK_OPS_PARAMETER_SERVICE_OPS_H_

#include <memory>

#include "ops/runtime/parameters/parameter_service.h"
#include "ops/status_adapter.h"

namespace trepak {

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
