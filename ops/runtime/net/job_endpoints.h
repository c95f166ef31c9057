// What all endpoints of a process need to begin and to end: a transport, and a common farewell.

#ifndef TREPAK_OPS_RUNTIME_NET_JOB_ENDPOINTS_H_
#define TREPAK_OPS_RUNTIME_NET_JOB_ENDPOINTS_H_

#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ops/runtime/net/endpoint.h"
#include "ops/runtime/net/handshake.h"

namespace trepak {

// What carries an endpoint's messages. On all ranks alike.
enum class Carrier {
  kFlows,  // flows that are proved, see ZmqTransport
  kAuto,   // UCX between ranks of one host, where it is faster; flows between others
  kUcx,    // UCX between all, over what UCX_TLS names
};

// This process's place in the job.
struct JobOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string host;  // this rank's address, which the others can reach
  Secret secret{};   // the job's
  bool encrypt = false;
  std::chrono::milliseconds deadline{60'000};
  std::vector<int> dscp = {46, 0};  // by priority, the highest first

  Endpoint::Options endpoint() const { return {rank, size, deadline}; }
};

// The ranks from 0 on.
inline std::vector<uint32_t> AllRanks(uint32_t size) {
  std::vector<uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Gives an endpoint a transport that listens.
Status Listen(const JobOptions& options, Carrier carrier, Endpoint* endpoint);

// Has endpoints say farewell, and waits until their peers have too; null ones are left out.
void LeaveTogether(const std::vector<Endpoint*>& endpoints, std::chrono::milliseconds patience);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_JOB_ENDPOINTS_H_
