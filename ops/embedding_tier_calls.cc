// Counts accesses to rows of embeddings, and places rows in the tiers of memory.

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "ops/calls.h"
#include "ops/embedding_stores.h"

namespace trepak {
namespace {

RowPolicy PolicyOf(const std::string& name) {
  static const auto* const policies =
      new std::map<std::string, RowPolicy>{{"none", RowPolicy::kNone},
                                           {"score", RowPolicy::kScore},
                                           {"lru", RowPolicy::kLru},
                                           {"lfu", RowPolicy::kLfu}};
  const auto found = policies->find(name);
  if (found == policies->end()) {
    throw std::invalid_argument("there is no policy '" + name + "'");
  }
  return found->second;
}

// Null if it is not open.
std::shared_ptr<EmbeddingStore> StoreOf(const Arguments& given) {
  return EmbeddingStores::Global().Find(given.Get<int64_t>("store"));
}

absl::Status NotOpen(const Arguments& given) {
  return EmbeddingStores::NotOpen(given.Get<int64_t>("store"));
}

Json Told(const PlacedRows& placed) {
  return {{"rows", placed.rows},         {"fast_rows", placed.fast_rows},
          {"scores", placed.scores},     {"fast_scores", placed.fast_scores},
          {"moved_in", placed.moves.in}, {"moved_out", placed.moves.out}};
}

// store, policy: "none", "score", "lru" or "lfu", decay, by_importance.
absl::Status Track(const Arguments& given, Json*) {
  const auto store = StoreOf(given);
  if (store == nullptr) {
    return NotOpen(given);
  }
  RowScoring scoring;
  scoring.policy = PolicyOf(given.Get<std::string>("policy"));
  scoring.decay = given.GetOr("decay", scoring.decay);
  scoring.by_importance = given.GetOr("by_importance", false);
  return ToEmbeddingError(store->Track(scoring));
}

// store, seed: null for the rows with the largest scores, else of a random choice.
absl::Status Place(const Arguments& given, Json* result) {
  const auto store = StoreOf(given);
  if (store == nullptr) {
    return NotOpen(given);
  }
  RowPlacement placement;
  placement.is_random = !given.Get<Json>("seed").is_null();
  placement.seed = placement.is_random ? given.Get<uint64_t>("seed") : 0;
  PlacedRows placed;
  TF_RETURN_IF_ERROR(ToEmbeddingError(store->Place(placement, &placed)));
  *result = Told(placed);
  return absl::OkStatus();
}

// store.
absl::Status Replace(const Arguments& given, Json* result) {
  const auto store = StoreOf(given);
  if (store == nullptr) {
    return NotOpen(given);
  }
  PlacedRows placed;
  TF_RETURN_IF_ERROR(ToEmbeddingError(store->Replace(&placed)));
  *result = Told(placed);
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls(
    {{"track_embeddings", Track}, {"place_embeddings", Place}, {"replace_embeddings", Replace}});

}  // namespace
}  // namespace trepak
