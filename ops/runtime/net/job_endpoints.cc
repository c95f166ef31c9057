#include "ops/runtime/net/job_endpoints.h"

#include <memory>
#include <utility>

#include "ops/runtime/net/ucx_transport.h"
#include "ops/runtime/net/zmq_transport.h"

namespace trepak {

namespace {

Status StartFlows(const JobOptions& options, Transport::Receiver* receiver,
                  std::unique_ptr<Transport>* transport) {
  ZmqTransport::Options transport_options;
  transport_options.rank = options.rank;
  transport_options.host = options.host;
  transport_options.secret = options.secret;
  transport_options.encrypt = options.encrypt;
  transport_options.dscp = options.dscp.front();
  transport_options.silence = options.deadline;
  transport_options.flows = options.size * options.dscp.size();
  std::unique_ptr<ZmqTransport> made;
  TREPAK_RETURN_IF_ERROR(ZmqTransport::Start(transport_options, receiver, &made));
  *transport = std::move(made);
  return OkStatus();
}

Status StartUcx(const JobOptions& options, Carrier carrier, Transport::Receiver* receiver,
                std::unique_ptr<Transport>* transport) {
  UcxTransport::Options ucx;
  ucx.rank = options.rank;
  ucx.only_where_faster = carrier == Carrier::kAuto;
  ucx.encrypt = options.encrypt;
  const auto start_flows = [&](Transport::Receiver* inner, std::unique_ptr<Transport>* flows) {
    return StartFlows(options, inner, flows);
  };
  std::unique_ptr<UcxTransport> made;
  TREPAK_RETURN_IF_ERROR(UcxTransport::Start(ucx, receiver, start_flows, &made));
  *transport = std::move(made);
  return OkStatus();
}

}  // namespace

Status Listen(const JobOptions& options, Carrier carrier, Endpoint* endpoint) {
  std::unique_ptr<Transport> transport;
  TREPAK_RETURN_IF_ERROR(carrier == Carrier::kFlows
                             ? StartFlows(options, endpoint, &transport)
                             : StartUcx(options, carrier, endpoint, &transport));
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
