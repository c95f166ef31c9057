#include "ops/runtime/sven/embedding_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ops/runtime/sven/embedding_admission.h"

namespace trepak {
namespace {

constexpr uint32_t kNoShard = std::numeric_limits<uint32_t>::max();
// More in one table is a mistake, and would make the grid large.
constexpr size_t kMostCells = size_t{1} << 22;

std::string NameOf(const EmbeddingTable& table) { return "embedding table '" + table.name + "'"; }

std::string NameOf(size_t number, const EmbeddingShard& shard) {
  return "shard " + std::to_string(number) + " (rank " + std::to_string(shard.rank) + ")";
}

Status CheckTable(const EmbeddingTable& table) {
  if (table.vocabulary < 1 || table.dim < 1) {
    return InvalidArgumentError(NameOf(table) + " must have rows and columns, but has " +
                                std::to_string(table.vocabulary) + " rows of " +
                                std::to_string(table.dim) + " columns");
  }
  constexpr int64_t kMostColumns = 1 << 20;  // so that sizes in bytes don't overflow
  if (table.vocabulary > std::numeric_limits<int64_t>::max() / 64 / kMostColumns ||
      table.dim > kMostColumns) {
    return InvalidArgumentError(NameOf(table) + " is too large");
  }
  if (table.min_count < 0 || table.min_count > EmbeddingAdmission::kMostCount) {
    return InvalidArgumentError(NameOf(table) + " has min_count " +
                                std::to_string(table.min_count) + ", which must be from 0 to " +
                                std::to_string(EmbeddingAdmission::kMostCount));
  }
  if (table.row_limit < 0 || (table.row_limit > 0 && table.min_count == 0)) {
    return InvalidArgumentError(NameOf(table) + " has row_limit " +
                                std::to_string(table.row_limit) +
                                ", which must be at least 0 and needs a min_count");
  }
  return CheckRowOptimizer(table.optimizer).Annotate(NameOf(table));
}

// Fails unless a shard lies inside its table.
Status CheckShard(const EmbeddingTable& table, const EmbeddingShard& shard) {
  if (shard.first_column < 0 || shard.columns < 1 || shard.first_column > table.dim ||
      shard.columns > table.dim - shard.first_column) {
    return InvalidArgumentError("it has " + std::to_string(shard.columns) + " columns from " +
                                std::to_string(shard.first_column) + " on, of " +
                                std::to_string(table.dim));
  }
  if (shard.first_row < 0 || shard.rows < 0 || shard.row_stride < 1) {
    return InvalidArgumentError("its first row and its rows must be at least 0, its stride 1");
  }
  const bool inside =
      shard.rows == 0 ||
      (shard.first_row < table.vocabulary &&
       shard.rows - 1 <= (table.vocabulary - 1 - shard.first_row) / shard.row_stride);
  if (!inside) {
    return InvalidArgumentError("it has " + std::to_string(shard.rows) + " rows from " +
                                std::to_string(shard.first_row) + " on, each " +
                                std::to_string(shard.row_stride) + ", which is beyond the " +
                                std::to_string(table.vocabulary) + " rows of the table");
  }
  return OkStatus();
}

// Builds the grid of one table.
class GridMaker {
 public:
  GridMaker(const EmbeddingTable& table, const std::vector<EmbeddingShard>& shards,
            std::vector<uint32_t> numbers)
      : table_(table), shards_(shards), numbers_(std::move(numbers)) {}

  Status Make(EmbeddingGrid* grid) {
    TREPAK_RETURN_IF_ERROR(FindStride());
    FindCuts();
    size_t blocks = 0;
    for (const std::vector<int64_t>& ends : ends_) {
      blocks += ends.size();
    }
    if (blocks > kMostCells / (grid_.pieces.size() - 1)) {
      return InvalidArgumentError("its shards cut it into too many pieces");
    }
    MakeBlocks();
    for (const uint32_t number : numbers_) {
      TREPAK_RETURN_IF_ERROR(Place(number));
    }
    TREPAK_RETURN_IF_ERROR(CheckCovered());
    *grid = std::move(grid_);
    return OkStatus();
  }

 private:
  int64_t RemainderOf(const EmbeddingShard& shard) const { return shard.first_row % grid_.stride; }
  int64_t PlaceOf(const EmbeddingShard& shard) const { return shard.first_row / grid_.stride; }

  // All shards have one stride, and none of its remainders is without a shard.
  Status FindStride() {
    if (numbers_.empty()) {
      return InvalidArgumentError("no shard has any of its rows");
    }
    grid_.stride = shards_[numbers_[0]].row_stride;
    for (const uint32_t number : numbers_) {
      if (shards_[number].row_stride != grid_.stride) {
        return InvalidArgumentError("its shards must have one row stride, but " +
                                    std::to_string(grid_.stride) + " and " +
                                    std::to_string(shards_[number].row_stride) + " are given");
      }
    }
    const int64_t remainders = std::min(grid_.stride, table_.vocabulary);
    if (remainders > static_cast<int64_t>(numbers_.size())) {
      return InvalidArgumentError("a row stride of " + std::to_string(grid_.stride) +
                                  " needs as many shards, but there are " +
                                  std::to_string(numbers_.size()));
    }
    ends_.resize(static_cast<size_t>(remainders));
    return OkStatus();
  }

  // Where shards begin and end, blocks and pieces do.
  void FindCuts() {
    for (size_t remainder = 0; remainder < ends_.size(); ++remainder) {
      const int64_t beyond = table_.vocabulary - 1 - static_cast<int64_t>(remainder);
      ends_[remainder] = {0, beyond / grid_.stride + 1};
    }
    grid_.pieces = {0, table_.dim};
    for (const uint32_t number : numbers_) {
      const EmbeddingShard& shard = shards_[number];
      grid_.pieces.push_back(shard.first_column);
      grid_.pieces.push_back(shard.first_column + shard.columns);
      std::vector<int64_t>& ends = ends_[static_cast<size_t>(RemainderOf(shard))];
      ends.push_back(PlaceOf(shard));
      ends.push_back(PlaceOf(shard) + shard.rows);
    }
    const auto make_unique = [](std::vector<int64_t>* cuts) {
      std::sort(cuts->begin(), cuts->end());
      cuts->erase(std::unique(cuts->begin(), cuts->end()), cuts->end());
    };
    make_unique(&grid_.pieces);
    for (std::vector<int64_t>& ends : ends_) {
      make_unique(&ends);
      ends.erase(ends.begin());  // 0 ends no block
    }
  }

  void MakeBlocks() {
    const size_t pieces = grid_.pieces.size() - 1;
    for (const std::vector<int64_t>& ends : ends_) {
      grid_.begins.push_back(grid_.blocks.size());
      for (const int64_t end : ends) {
        grid_.blocks.push_back(
            {end, std::vector<uint32_t>(pieces, kNoShard), std::vector<int64_t>(pieces, 0)});
      }
    }
    grid_.begins.push_back(grid_.blocks.size());
  }

  // Gives a shard its cells.
  Status Place(uint32_t number) {
    const EmbeddingShard& shard = shards_[number];
    const auto remainder = static_cast<size_t>(RemainderOf(shard));
    const int64_t first = PlaceOf(shard);
    const std::vector<int64_t>& ends = ends_[remainder];
    const auto begin = std::upper_bound(ends.begin(), ends.end(), first);
    for (auto end = begin; end != ends.end() && *end <= first + shard.rows; ++end) {
      EmbeddingGrid::Block& block =
          grid_.blocks[grid_.begins[remainder] + static_cast<size_t>(end - ends.begin())];
      for (size_t piece = 0; piece + 1 < grid_.pieces.size(); ++piece) {
        const int64_t column = grid_.pieces[piece];
        if (column < shard.first_column || column >= shard.first_column + shard.columns) {
          continue;
        }
        const uint32_t other = std::exchange(block.shards[piece], number);
        block.first_row[piece] = first;
        if (other != kNoShard) {
          return InvalidArgumentError(
              NameOf(other, shards_[other]) + " and " + NameOf(number, shard) +
              " both have column " + std::to_string(column) + " of row " +
              std::to_string((end == ends.begin() ? 0 : end[-1]) * grid_.stride +
                             static_cast<int64_t>(remainder)));
        }
      }
    }
    return OkStatus();
  }

  Status CheckCovered() const {
    for (size_t remainder = 0; remainder < ends_.size(); ++remainder) {
      int64_t begin = 0;
      for (size_t i = 0; i < ends_[remainder].size(); ++i) {
        const EmbeddingGrid::Block& block = grid_.blocks[grid_.begins[remainder] + i];
        const auto hole = std::find(block.shards.begin(), block.shards.end(), kNoShard);
        if (hole != block.shards.end()) {
          return InvalidArgumentError(
              "no shard has column " +
              std::to_string(grid_.pieces[static_cast<size_t>(hole - block.shards.begin())]) +
              " of row " + std::to_string(begin * grid_.stride + static_cast<int64_t>(remainder)));
        }
        begin = block.end;
      }
    }
    return OkStatus();
  }

  const EmbeddingTable& table_;
  const std::vector<EmbeddingShard>& shards_;
  const std::vector<uint32_t> numbers_;
  std::vector<std::vector<int64_t>> ends_;  // by remainder: where its blocks end
  EmbeddingGrid grid_;
};

}  // namespace

Status EmbeddingPlan::Make(size_t ranks, std::vector<EmbeddingTable> tables,
                           std::vector<EmbeddingShard> shards,
                           std::shared_ptr<const EmbeddingPlan>* plan) {
  if (ranks < 1 || tables.empty()) {
    return InvalidArgumentError("a plan of embeddings needs a rank and a table");
  }
  for (const EmbeddingTable& table : tables) {
    TREPAK_RETURN_IF_ERROR(CheckTable(table));
  }
  if (shards.size() >= kNoShard) {
    return InvalidArgumentError("too many shards");
  }
  std::vector<std::vector<uint32_t>> by_table(tables.size());  // without those that have no rows
  const std::shared_ptr<EmbeddingPlan> made(new EmbeddingPlan);
  made->shards_of_.resize(ranks);
  for (size_t i = 0; i < shards.size(); ++i) {
    const EmbeddingShard& shard = shards[i];
    if (shard.table >= tables.size() || shard.rank >= ranks) {
      return InvalidArgumentError(
          "shard " + std::to_string(i) + " is of table " + std::to_string(shard.table) +
          " on rank " + std::to_string(shard.rank) + ", but there are " +
          std::to_string(tables.size()) + " tables and " + std::to_string(ranks) + " ranks");
    }
    const EmbeddingTable& table = tables[shard.table];
    TREPAK_RETURN_IF_ERROR(
        CheckShard(table, shard).Annotate(NameOf(table) + ": " + NameOf(i, shard)));
    made->shards_of_[shard.rank].push_back(static_cast<uint32_t>(i));
    if (shard.rows > 0) {
      by_table[shard.table].push_back(static_cast<uint32_t>(i));
    }
  }
  made->grids_.resize(tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    GridMaker maker(tables[i], shards, std::move(by_table[i]));
    TREPAK_RETURN_IF_ERROR(maker.Make(&made->grids_[i]).Annotate(NameOf(tables[i])));
  }
  made->tables_ = std::move(tables);
  made->shards_ = std::move(shards);
  *plan = made;
  return OkStatus();
}

}  // namespace trepak
