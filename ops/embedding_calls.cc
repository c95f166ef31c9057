// Opens and closes stores of embeddings, and says what they have done.

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls.h"
#include "ops/embedding_stores.h"
#include "ops/runtime/sven/embedding_peer.h"
#include "ops/session_ops.h"

namespace trepak {
namespace {

using Options = std::map<std::string, float RowOptimizer::*>;

struct RuleNames {
  RowRule rule;
  Options options;
};

// As Keras calls them.
const std::map<std::string, RuleNames>& Rules() {
  using Row = RowOptimizer;
  static const auto* const rules = new std::map<std::string, RuleNames>{
      {"sgd", {RowRule::kSgd, {}}},
      {"adagrad",
       {RowRule::kAdagrad,
        {{"initial_accumulator_value", &Row::initial_accumulator_value},
         {"epsilon", &Row::epsilon}}}},
      {"adam", {RowRule::kAdam, {{"epsilon", &Row::epsilon}}}},
      {"ftrl",
       {RowRule::kFtrl,
        {{"learning_rate_power", &Row::learning_rate_power},
         {"initial_accumulator_value", &Row::initial_accumulator_value},
         {"l1_regularization_strength", &Row::l1_regularization_strength},
         {"l2_regularization_strength", &Row::l2_regularization_strength},
         {"l2_shrinkage_regularization_strength", &Row::l2_shrinkage_regularization_strength},
         {"beta", &Row::beta}}}}};
  return *rules;
}

// `given`: the name, and options, of which each has a default.
RowOptimizer OptimizerOf(const Json& given) {
  const auto name = Arguments(given).Get<std::string>("name");
  const auto rule = Rules().find(name);
  if (rule == Rules().end()) {
    throw std::invalid_argument("there is no row optimizer '" + name + "'");
  }
  RowOptimizer optimizer;
  optimizer.rule = rule->second.rule;
  for (const auto& [option, value] : given.items()) {
    const auto known = rule->second.options.find(option);
    if (known != rule->second.options.end()) {
      optimizer.*known->second = value.get<float>();
    } else if (option == "beta_1" && optimizer.rule == RowRule::kAdam) {
      optimizer.beta_1 = value.get<double>();
    } else if (option == "beta_2" && optimizer.rule == RowRule::kAdam) {
      optimizer.beta_2 = value.get<double>();
    } else if (option != "name") {
      throw std::invalid_argument("the row optimizer '" + name + "' has no option '" + option +
                                  "'");
    }
  }
  return optimizer;
}

EmbeddingTable TableOf(const Json& given) {
  const Arguments arguments(given);
  EmbeddingTable table;
  table.name = arguments.Get<std::string>("name");
  table.vocabulary = arguments.Get<int64_t>("vocabulary");
  table.dim = arguments.Get<int64_t>("dim");
  table.hashed = arguments.GetOr("hashed", false);
  table.min_count = arguments.GetOr<int64_t>("min_count", 0);
  table.row_limit = arguments.GetOr<int64_t>("row_limit", 0);
  try {
    table.optimizer = OptimizerOf(arguments.Get<Json>("optimizer"));
  } catch (const std::exception& error) {
    throw std::invalid_argument("embedding table '" + table.name + "': " + error.what());
  }
  return table;
}

EmbeddingShard ShardOf(const Json& given) {
  const Arguments arguments(given);
  EmbeddingShard shard;
  shard.table = arguments.Get<size_t>("table");
  shard.rank = arguments.Get<size_t>("rank");
  shard.first_row = arguments.Get<int64_t>("first_row");
  shard.row_stride = arguments.Get<int64_t>("row_stride");
  shard.rows = arguments.Get<int64_t>("rows");
  shard.first_column = arguments.Get<int64_t>("first_column");
  shard.columns = arguments.Get<int64_t>("columns");
  return shard;
}

// rank, ranks, tables: [{name, vocabulary, dim, optimizer: {name, …}, hashed, min_count,
// row_limit}], shards: [{table, rank, first_row, row_stride, rows, first_column, columns}],
// fast_bytes, folder, device: as TrepakEmbeddingDevice numbers it, 0: none. What a table has behind
// its optimizer, and the last three, may be left out.
absl::Status Open(const Arguments& given, Json* result) {
  const auto number = given.GetOr<int64_t>("device", 0);
  const std::shared_ptr<EmbeddingDevice> device = EmbeddingDevices::Global().Take(number);
  if (device == nullptr && number != 0) {
    return absl::FailedPreconditionError("trepak: the device " + std::to_string(number) +
                                         " for embeddings is not there, or was taken");
  }
  std::vector<EmbeddingTable> tables;
  for (const Json& table : given.Get<Json>("tables")) {
    tables.push_back(TableOf(table));
  }
  std::vector<EmbeddingShard> shards;
  for (const Json& shard : given.Get<Json>("shards")) {
    shards.push_back(ShardOf(shard));
  }
  std::shared_ptr<const EmbeddingPlan> plan;
  TF_RETURN_IF_ERROR(ToEmbeddingError(EmbeddingPlan::Make(
      given.Get<size_t>("ranks"), std::move(tables), std::move(shards), &plan)));
  const TierOptions tiers = {given.GetOr<std::string>("folder", ""),
                             given.GetOr<uint64_t>("fast_bytes", 0), device};
  std::shared_ptr<EmbeddingStore> store;
  TF_RETURN_IF_ERROR(ToEmbeddingError(
      EmbeddingStore::Make(std::move(plan), given.Get<size_t>("rank"), tiers, &store)));
  *result = {{"store", EmbeddingStores::Global().Add(std::move(store))}};
  return absl::OkStatus();
}

// store; session: by which other ranks may still read it, -1: none.
absl::Status Close(const Arguments& given, Json*) {
  std::shared_ptr<EmbeddingStore> store =
      EmbeddingStores::Global().Take(given.Get<int64_t>("store"));
  const auto number = given.Get<int64_t>("session");
  const auto session =
      number < 0 ? nullptr
                 : Sessions::Global().Find(EmbeddingPeer::kSystem, static_cast<uint32_t>(number));
  const auto peer = session == nullptr ? nullptr : session->Find<EmbeddingPeer>(0);
  if (store != nullptr && peer != nullptr) {
    peer->Retire(std::move(store));
  }
  return absl::OkStatus();
}

absl::Status Statistics(const Arguments& given, Json* result) {
  const auto number = given.Get<int64_t>("store");
  const auto store = EmbeddingStores::Global().Find(number);
  if (store == nullptr) {
    return EmbeddingStores::NotOpen(number);
  }
  const EmbeddingStatistics found = store->statistics();
  *result = {{"ids", found.ids},
             {"unique_rows", found.unique_rows},
             {"lookups", found.lookups},
             {"rows_looked_up", found.rows_looked_up},
             {"bytes_answered", found.bytes_answered},
             {"rows_updated", found.rows_updated},
             {"updates", found.updates},
             {"bytes", found.bytes},
             {"fast_bytes", found.fast_bytes},
             {"disk_bytes", found.disk_bytes},
             {"fast_rows", found.fast_rows},
             {"moves", found.moves},
             {"evictions", found.evictions},
             {"rows_admitted", found.rows_admitted},
             {"rows_dropped", found.rows_dropped}};
  return absl::OkStatus();
}

// Which versions look-ups with permits have seen since the last reset.
absl::Status Permits(const Arguments& given, Json* result) {
  const auto number = given.Get<int64_t>("store");
  const auto store = EmbeddingStores::Global().Find(number);
  if (store == nullptr) {
    return EmbeddingStores::NotOpen(number);
  }
  const EmbeddingPermits permits = store->permits();
  *result = {{"look_ups", permits.taken()},
             {"most_stale", permits.most_stale()},
             {"versions", permits.log()}};
  if (given.Get<bool>("reset")) {
    store->ResetPermits();
  }
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"open_embeddings", Open},
                                                         {"close_embeddings", Close},
                                                         {"embedding_permits", Permits},
                                                         {"embedding_statistics", Statistics}});

}  // namespace
}  // namespace trepak
