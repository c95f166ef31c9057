// Which tables of embeddings there are, and which rank has which part of them.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PLAN_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_optimizer.h"

namespace trepak {

struct EmbeddingTable {
  std::string name;
  int64_t vocabulary = 0;  // rows
  int64_t dim = 0;         // columns
  RowOptimizer optimizer;
  bool hashed = false;    // any id is one of the table's: row HashedRow(id)
  int64_t min_count = 0;  // how often a row is seen before it is admitted; 0: all rows are
  int64_t row_limit = 0;  // on rows that are admitted, of all shards together; 0: none
};

// A part of a table that one rank has: the rows first_row, first_row + row_stride, … of some
// columns that stand side by side. It may have no rows.
struct EmbeddingShard {
  size_t table = 0;
  size_t rank = 0;
  int64_t first_row = 0;
  int64_t row_stride = 1;
  int64_t rows = 0;
  int64_t first_column = 0;
  int64_t columns = 0;
};

// How the rows of one table are found: its shards as a grid of cells. A row `r` is row r / stride
// of the rows with the remainder r % stride; those are cut into blocks, and each block has one cell
// for each piece of columns.
struct EmbeddingGrid {
  struct Block {
    int64_t end;                     // the first of the numbers r / stride that lies behind it
    std::vector<uint32_t> shards;    // by piece of columns
    std::vector<int64_t> first_row;  // by piece: what its shard has as row 0, as r / stride
  };

  // The block of a row, and where the row is among those with its remainder.
  size_t Find(int64_t row, int64_t* place) const {
    int64_t remainder = 0;
    *place = row;
    if (stride > 1) {
      *place = row / stride;
      remainder = row - *place * stride;
    }
    const size_t* const begin = &begins[static_cast<size_t>(remainder)];
    const Block* const first = blocks.data() + begin[0];
    return static_cast<size_t>(
        std::upper_bound(first, blocks.data() + begin[1], *place,
                         [](int64_t mine, const Block& block) { return mine < block.end; }) -
        blocks.data());
  }

  int64_t stride = 1;
  std::vector<size_t> begins;   // by remainder: its first block; then how many there are
  std::vector<Block> blocks;    // those of a remainder stand together, in the order of rows
  std::vector<int64_t> pieces;  // where the pieces of columns begin, and the end of the last one
};

// Tables and shards that fit together. Immutable. Thread safety: const methods may be called from
// many threads at once.
class EmbeddingPlan {
 public:
  // Fails, naming the table, unless the shards have each row and column of each table exactly once.
  static Status Make(size_t ranks, std::vector<EmbeddingTable> tables,
                     std::vector<EmbeddingShard> shards,
                     std::shared_ptr<const EmbeddingPlan>* plan);

  size_t ranks() const { return shards_of_.size(); }
  const std::vector<EmbeddingTable>& tables() const { return tables_; }
  const std::vector<EmbeddingShard>& shards() const { return shards_; }
  const EmbeddingGrid& grid(size_t table) const { return grids_[table]; }

  // The numbers of the shards that a rank has, in the plan's order.
  const std::vector<uint32_t>& shards_of(size_t rank) const { return shards_of_[rank]; }

  // Numbers in a row of a shard: weights; `with_slots` also what the optimizer keeps, and, with a
  // min_count, how often the row was seen, as many times as it has columns.
  size_t WidthOf(size_t shard, bool with_slots) const {
    const EmbeddingShard& of = shards_[shard];
    const EmbeddingTable& table = tables_[of.table];
    const size_t kept = SlotsOf(table.optimizer) + (table.min_count > 0 ? 1 : 0);
    return static_cast<size_t>(of.columns) * (1 + (with_slots ? kept : 0));
  }

  // For messages: the row of the table that is row `row` of a shard.
  int64_t RowOfTable(size_t shard, int64_t row) const {
    return shards_[shard].first_row + row * shards_[shard].row_stride;
  }

 private:
  EmbeddingPlan() = default;

  std::vector<EmbeddingTable> tables_;
  std::vector<EmbeddingShard> shards_;
  std::vector<std::vector<uint32_t>> shards_of_;  // by rank
  std::vector<EmbeddingGrid> grids_;              // by table
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PLAN_H_
