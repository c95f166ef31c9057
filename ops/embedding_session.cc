// Rows of embeddings on other ranks, as a system: a peer on each rank, for the store of one layer.

#include <memory>
#include <string>
#include <utility>

#include "ops/embedding_stores.h"
#include "ops/runtime/sven/embedding_peer.h"
#include "ops/session_ops.h"

namespace trepak {
namespace {

// store: the number of this rank's.
Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Endpoint::Options about = opening.job.endpoint();
  const auto number = opening.options.at("store").get<int64_t>();
  const std::shared_ptr<EmbeddingStore> store = EmbeddingStores::Global().Find(number);
  if (store == nullptr) {
    return InvalidArgumentError("the store of embeddings " + std::to_string(number) +
                                " is not open on rank " + std::to_string(about.rank));
  }
  Session::Part part;
  part.endpoint = std::make_shared<EmbeddingPeer>(about, store, std::make_shared<ErrorLatch>());
  for (const uint32_t rank : AllRanks(about.size)) {
    if (rank != about.rank) {  // its own rows need no flow
      part.members.push_back(rank);
    }
  }
  part.dscp = {opening.job.dscp.front()};
  parts->push_back(std::move(part));
  return OkStatus();
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    EmbeddingPeer::kSystem, {"the exchange of embedding rows", Make, nullptr, {}});

}  // namespace
}  // namespace trepak
