#include "ops/runtime/sven/embedding_routing.h"

#include <limits>
#include <utility>

#include "ops/runtime/sven/embedding_hash.h"
#include "ops/runtime/sven/embedding_index.h"

namespace trepak {
namespace {

Status CheckSplits(const FeatureIds& feature) {
  const Span<int64_t>& splits = feature.splits;
  bool right = splits.size > 0 && splits[0] == 0 &&
               splits[splits.size - 1] == static_cast<int64_t>(feature.ids.size);
  for (size_t i = 1; right && i < splits.size; ++i) {
    right = splits[i] >= splits[i - 1];
  }
  return right ? OkStatus()
               : InvalidArgumentError("its row splits must rise from 0 to the number of ids, " +
                                      std::to_string(feature.ids.size));
}

}  // namespace

// Makes one routing. What it needs only meanwhile is here.
class RoutingMaker {
 public:
  explicit RoutingMaker(std::shared_ptr<const EmbeddingPlan> plan)
      : plan_(std::move(plan)),
        routing_(new EmbeddingRouting),
        tables_(plan_->tables().size()),
        counts_(plan_->shards().size(), 0),
        next_row_(plan_->shards().size(), nullptr),
        next_value_(plan_->shards().size(), 0) {
    routing_->plan_ = plan_;
    routing_->places_.resize(plan_->tables().size());
  }

  Status Number(const std::vector<FeatureIds>& features);
  void Count();
  Status Write(const EmbeddingRouting::Allocate& allocate);

  std::shared_ptr<const EmbeddingRouting> Take() { return std::move(routing_); }

 private:
  // The rows of one table, by number.
  struct Table {
    size_t ids = 0;
    size_t rows = 0;
    std::unique_ptr<int64_t[]> places;  // as r / stride
    std::unique_ptr<uint32_t[]> blocks;
  };

  Status NumberFeature(const FeatureIds& ids, EmbeddingIndex* index, uint32_t* numbers) const;
  void FindBlocks(size_t number, const EmbeddingIndex& index);
  void WriteTable(size_t number);

  const std::shared_ptr<const EmbeddingPlan> plan_;
  std::shared_ptr<EmbeddingRouting> routing_;
  std::vector<Table> tables_;
  std::vector<size_t> counts_;       // by shard: rows
  std::vector<int64_t*> next_row_;   // by shard: where its next row is written
  std::vector<int64_t> next_value_;  // by shard: where that row's numbers will be
};

// Numbers the rows of each table.
Status RoutingMaker::Number(const std::vector<FeatureIds>& features) {
  for (const FeatureIds& feature : features) {
    if (feature.table >= tables_.size()) {
      return InvalidArgumentError("feature '" + feature.name + "' is of table " +
                                  std::to_string(feature.table) + ", but there are " +
                                  std::to_string(tables_.size()));
    }
    TREPAK_RETURN_IF_ERROR(CheckSplits(feature).Annotate("feature '" + feature.name + "'"));
    tables_[feature.table].ids += feature.ids.size;
    routing_->ids_ += feature.ids.size;
    EmbeddingRouting::Feature known;
    known.name = feature.name;
    known.table = feature.table;
    known.splits.assign(feature.splits.begin(), feature.splits.end());
    known.numbers.reset(new uint32_t[feature.ids.size]);
    routing_->features_.push_back(std::move(known));
  }
  if (routing_->ids_ >= std::numeric_limits<uint32_t>::max()) {
    return InvalidArgumentError("a step can't have " + std::to_string(routing_->ids_) + " ids");
  }
  EmbeddingIndex index;  // of each table in turn
  for (size_t table = 0; table < tables_.size(); ++table) {
    index.Reset(tables_[table].ids);
    for (size_t i = 0; i < features.size(); ++i) {
      if (features[i].table == table) {
        TREPAK_RETURN_IF_ERROR(
            NumberFeature(features[i], &index, routing_->features_[i].numbers.get()));
      }
    }
    FindBlocks(table, index);
  }
  return OkStatus();
}

Status RoutingMaker::NumberFeature(const FeatureIds& feature, EmbeddingIndex* index,
                                   uint32_t* numbers) const {
  const EmbeddingTable& table = plan_->tables()[feature.table];
  const auto beyond = static_cast<uint64_t>(table.vocabulary);
  if (table.hashed) {
    for (size_t i = 0; i < feature.ids.size; ++i) {
      numbers[i] = index->Number(HashedRow(feature.ids[i], table.vocabulary));
    }
    return OkStatus();
  }
  for (size_t i = 0; i < feature.ids.size; ++i) {
    const int64_t id = feature.ids[i];
    if (static_cast<uint64_t>(id) >= beyond) {
      return InvalidArgumentError("feature '" + feature.name + "': the id at position " +
                                  std::to_string(i) + " is " + std::to_string(id) +
                                  ", but table '" + table.name + "' has a vocabulary of " +
                                  std::to_string(beyond) + ": ids are from 0 to " +
                                  std::to_string(beyond - 1) + "; hashed= of the layer takes any");
    }
    numbers[i] = index->Number(id);
  }
  return OkStatus();
}

// Keeps where each row is, and counts the rows of each block's shards.
void RoutingMaker::FindBlocks(size_t number, const EmbeddingIndex& index) {
  Table& table = tables_[number];
  const EmbeddingGrid& grid = plan_->grid(number);
  table.rows = index.count();
  table.places.reset(new int64_t[table.rows]);
  table.blocks.reset(new uint32_t[table.rows]);
  std::vector<size_t> counts(grid.blocks.size(), 0);
  for (size_t i = 0; i < table.rows; ++i) {
    const size_t block = grid.Find(index.rows()[i], &table.places[i]);
    table.blocks[i] = static_cast<uint32_t>(block);
    ++counts[block];
  }
  for (size_t block = 0; block < counts.size(); ++block) {
    const std::vector<uint32_t>& shards = grid.blocks[block].shards;
    for (size_t piece = 0; piece < shards.size(); ++piece) {
      if (piece == 0 || shards[piece] != shards[piece - 1]) {
        counts_[shards[piece]] += counts[block];
      }
    }
  }
  routing_->rows_ += table.rows;
}

// Finds how much goes to each owner and comes back.
void RoutingMaker::Count() {
  for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
    size_t numbers = plan_->shards_of(rank).size();
    const size_t before = routing_->values_;
    for (const uint32_t shard : plan_->shards_of(rank)) {
      next_value_[shard] = static_cast<int64_t>(routing_->values_);
      numbers += counts_[shard];
      routing_->values_ += counts_[shard] * static_cast<size_t>(plan_->shards()[shard].columns);
    }
    routing_->request_splits_.push_back(static_cast<int64_t>(numbers));
    routing_->value_splits_.push_back(static_cast<int64_t>(routing_->values_ - before));
  }
  routing_->shard_rows_ = counts_;
  routing_->shard_values_ = next_value_;
}

Status RoutingMaker::Write(const EmbeddingRouting::Allocate& allocate) {
  size_t size = 0;
  for (const int64_t split : routing_->request_splits_) {
    size += static_cast<size_t>(split);
  }
  int64_t* next = allocate(size);
  if (next == nullptr && size > 0) {
    return ResourceExhaustedError("no memory for the requests of a step");
  }
  for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
    for (const uint32_t shard : plan_->shards_of(rank)) {
      *next++ = static_cast<int64_t>(counts_[shard]);
    }
    for (const uint32_t shard : plan_->shards_of(rank)) {
      next_row_[shard] = next;
      next += counts_[shard];
    }
  }
  for (size_t table = 0; table < tables_.size(); ++table) {
    WriteTable(table);
  }
  return OkStatus();
}

// Writes the requests for a table's rows, and remembers where their numbers will be.
void RoutingMaker::WriteTable(size_t number) {
  const Table& table = tables_[number];
  const EmbeddingGrid& grid = plan_->grid(number);
  const size_t pieces = grid.pieces.size() - 1;
  std::unique_ptr<int64_t[]> places(new int64_t[table.rows * pieces]);
  int64_t* next = places.get();
  for (size_t i = 0; i < table.rows; ++i) {
    const EmbeddingGrid::Block& block = grid.blocks[table.blocks[i]];
    for (size_t piece = 0; piece < pieces; ++piece, ++next) {
      const uint32_t shard = block.shards[piece];
      if (piece > 0 && shard == block.shards[piece - 1]) {
        *next = next[-1] + grid.pieces[piece] - grid.pieces[piece - 1];  // the same row goes on
        continue;
      }
      *next = next_value_[shard];
      next_value_[shard] += plan_->shards()[shard].columns;
      *next_row_[shard]++ = table.places[i] - block.first_row[piece];
    }
  }
  routing_->places_[number] = std::move(places);
}

Status EmbeddingRouting::Make(std::shared_ptr<const EmbeddingPlan> plan,
                              const std::vector<FeatureIds>& features, const Allocate& allocate,
                              std::shared_ptr<const EmbeddingRouting>* routing) {
  RoutingMaker maker(std::move(plan));
  TREPAK_RETURN_IF_ERROR(maker.Number(features));
  maker.Count();
  TREPAK_RETURN_IF_ERROR(maker.Write(allocate));
  *routing = maker.Take();
  return OkStatus();
}

}  // namespace trepak
