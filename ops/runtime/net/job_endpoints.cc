#include "ops/runtime/net/job_endpoints.h"

#include <memory>
#include <utility>

#include "ops/runtime/net/zmq_transport.h"

namespace trepak {

Status Listen(const JobOptions& options, Endpoint* endpoint) {
  ZmqTransport::Options transport_options;
  transport_options.rank = options.rank;
  transport_options.host = options.host;
  transport_options.secret = options.secret;
  transport_options.encrypt = options.encrypt;
  transport_options.dscp = options.dscp.front();
  transport_options.silence = options.deadline;
  transport_options.flows = options.size * options.dscp.size();
  std::unique_ptr<ZmqTransport> transport;
  TREPAK_RETURN_IF_ERROR(ZmqTransport::Start(transport_options, endpoint, &transport));
  endpoint->Attach(std::move(transport));
  return OkStatus();
}

void LeaveTogether(const std::vector<Endpoint*>& endpoints, std::chrono::milliseconds patience) {
  const auto deadline = Endpoint::Clock::now() + patience;
  for (Endpoint* const endpoint : endpoints) {
    if (endpoint != nullptr) {
      endpoint->Leave();
    }
  }
  for (Endpoint* const endpoint : endpoints) {
    if (endpoint != nullptr) {
      endpoint->WaitUntilAllHaveLeft(deadline);
    }
  }
}

}  // namespace trepak
