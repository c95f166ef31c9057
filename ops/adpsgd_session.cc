// AD-PSGD, as a system: a peer on each rank.

#include <cstdint>
#include <memory>
#include <utility>

#include "ops/packed.h"
#include "ops/runtime/adpsgd/adpsgd_peer.h"
#include "ops/runtime/coordination/sample_budget.h"
#include "ops/session_ops.h"
#include "ops/worker_ops.h"

namespace trepak {
namespace {

// Adds what training has made of the values it went on from, and begins to average.
void Add(const std::shared_ptr<Endpoint>& worker, const Payload& values, const System::Done& done) {
  const auto peer = std::static_pointer_cast<AdpsgdPeer>(worker);
  done(peer->Add(values, SampleBudget::Global().TakeDealt()), Payload());
}

void Load(const std::shared_ptr<Endpoint>& worker, const Payload&, System::Done done) {
  const auto peer = std::static_pointer_cast<AdpsgdPeer>(worker);
  Payload values;
  const Status status = peer->Load(&values);
  CountingSamples(peer, std::move(done))(status, values);
}

Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Packed packed = PackedFrom(opening.options);
  const Endpoint::Options about = opening.job.endpoint();
  AdpsgdPeer::Rules rules;
  rules.type = packed.type();
  rules.elements = packed.elements();
  rules.seed = opening.options.at("seed").get<uint64_t>();
  Session::Part part;
  part.endpoint = std::make_shared<AdpsgdPeer>(about, rules, std::make_shared<ErrorLatch>());
  for (uint32_t rank = 0; rank < about.size; ++rank) {
    if (rank != about.rank) {  // nobody averages with himself
      part.members.push_back(rank);
    }
  }
  part.dscp = {opening.job.dscp.back()};
  parts->push_back(std::move(part));
  return OkStatus();
}

Json Statistics(const Session& session) {
  const auto peer = session.Find<AdpsgdPeer>(0);
  const AdpsgdPeer::Counters c = peer == nullptr ? AdpsgdPeer::Counters{} : peer->counters();
  return {{"averagings", c.averagings}, {"steps", c.steps}};
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    AdpsgdPeer::kSystem, {"AD-PSGD",
                          Make,
                          Statistics,
                          {{"assign", Handing<AdpsgdPeer, &AdpsgdPeer::Assign>},
                           {"show", Handing<AdpsgdPeer, &AdpsgdPeer::Show>},
                           {"bring", Handing<AdpsgdPeer, &AdpsgdPeer::Bring>},
                           {"add", Add},
                           {"load", Load},
                           {"settle", Awaiting<AdpsgdPeer, &AdpsgdPeer::Settle>}}});

}  // namespace
}  // namespace trepak
