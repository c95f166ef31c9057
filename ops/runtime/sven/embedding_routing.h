// Which rank gives which rows for the ids of a step, and where the answers will stand.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROUTING_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROUTING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_plan.h"
#include "ops/runtime/sven/embedding_requests.h"

namespace trepak {

// The ids of one feature: those of sample s are ids[splits[s]], …, ids[splits[s + 1] - 1].
struct FeatureIds {
  std::string name;
  size_t table = 0;
  Span<int64_t> ids;
  Span<int64_t> splits;
};

// A step's ids, as a requester remembers them until its gradients are out. Immutable. Thread
// safety: const methods may be called from many threads at once.
class EmbeddingRouting {
 public:
  static constexpr const char* kName = "routing of look-ups";
  struct Feature {
    std::string name;
    size_t table = 0;
    std::vector<int64_t> splits;
    std::unique_ptr<uint32_t[]> numbers;  // by id: its row's number in the table

    size_t samples() const { return splits.size() - 1; }
    size_t ids() const { return static_cast<size_t>(splits.back()); }
  };

  // Gives memory for so many numbers, which stays until the requests are written; null: an error.
  using Allocate = std::function<int64_t*(size_t count)>;

  // Finds the rows of each table, without duplicates and in the order in which they first occur,
  // and writes the requests for them. Fails, naming the feature and the position, for an id that
  // the table does not have; then nothing is allocated.
  static Status Make(std::shared_ptr<const EmbeddingPlan> plan,
                     const std::vector<FeatureIds>& features, const Allocate& allocate,
                     std::shared_ptr<const EmbeddingRouting>* routing);

  const EmbeddingPlan& plan() const { return *plan_; }
  const std::vector<Feature>& features() const { return features_; }

  // Where a table's row, by its number, has its numbers in the buffer that comes back: one place
  // for each piece of columns.
  const int64_t* places(size_t table, uint32_t number) const {
    return places_[table].get() + number * pieces(table);
  }
  size_t pieces(size_t table) const { return plan_->grid(table).pieces.size() - 1; }

  // By owner: how many numbers it is sent, and how many it sends back; and the sum of these.
  const std::vector<int64_t>& request_splits() const { return request_splits_; }
  const std::vector<int64_t>& value_splits() const { return value_splits_; }
  size_t values() const { return values_; }

  // By shard: how many rows it is asked for, and where in that buffer their numbers begin.
  const std::vector<size_t>& shard_rows() const { return shard_rows_; }
  const std::vector<int64_t>& shard_values() const { return shard_values_; }

  // Of all tables: ids, and rows.
  size_t ids() const { return ids_; }
  size_t rows() const { return rows_; }

 private:
  friend class RoutingMaker;

  EmbeddingRouting() = default;

  std::shared_ptr<const EmbeddingPlan> plan_;
  std::vector<Feature> features_;
  std::vector<std::unique_ptr<int64_t[]>> places_;  // by table
  std::vector<int64_t> request_splits_;
  std::vector<int64_t> value_splits_;
  std::vector<size_t> shard_rows_;
  std::vector<int64_t> shard_values_;
  size_t values_ = 0;
  size_t ids_ = 0;
  size_t rows_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROUTING_H_
