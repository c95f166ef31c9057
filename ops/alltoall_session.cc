// The alltoall, as a system: a peer on each rank.

#include <memory>
#include <utility>

#include "ops/runtime/sven/alltoall_peer.h"
#include "ops/session_ops.h"

namespace trepak {
namespace {

Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Endpoint::Options about = opening.job.endpoint();
  Session::Part part;
  part.endpoint = std::make_shared<AlltoallPeer>(about, opening.options.at("credit").get<size_t>(),
                                                 std::make_shared<ErrorLatch>());
  for (const uint32_t rank : AllRanks(about.size)) {
    if (rank != about.rank) {  // its own split needs no flow
      part.members.push_back(rank);
    }
  }
  part.dscp = {opening.job.dscp.front()};
  TREPAK_RETURN_IF_ERROR(CarrierFrom(opening.options, "an alltoall", &part.carrier));
  parts->push_back(std::move(part));
  return OkStatus();
}

Json Statistics(const Session& session) {
  const auto peer = session.Find<AlltoallPeer>(0);
  const AlltoallPeer::Counters c = peer == nullptr ? AlltoallPeer::Counters{} : peer->counters();
  return {{"exchanges", c.exchanges},
          {"bytes_sent", c.bytes_sent},
          {"bytes_sent_over_ucx", c.bytes_beside},
          {"held_up", c.held_up},
          {"most_bytes_held", c.most_held},
          {"waiting_seconds", c.waiting_seconds},
          {"last_by_rank", c.last}};
}

[[maybe_unused]] const bool kRegistered =
    Sessions::Global().Register(AlltoallPeer::kSystem, {"the alltoall", Make, Statistics, {}});

}  // namespace
}  // namespace trepak
