// One rank's part of the embeddings of a layer.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_STORE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_index.h"
#include "ops/runtime/sven/embedding_permits.h"
#include "ops/runtime/sven/embedding_plan.h"
#include "ops/runtime/sven/embedding_requests.h"
#include "ops/runtime/sven/embedding_routing.h"
#include "ops/runtime/sven/embedding_rows.h"

namespace trepak {

// What a store has done since it was made.
struct EmbeddingStatistics {
  uint64_t ids = 0;          // that this rank has routed
  uint64_t unique_rows = 0;  // of tables, that these were of
  uint64_t lookups = 0;      // of all ranks' requests
  uint64_t rows_looked_up = 0;
  uint64_t bytes_answered = 0;
  uint64_t rows_updated = 0;
  uint64_t updates = 0;
  uint64_t bytes = 0;  // of memory for rows, touched or not
};

// Owns the rows of one rank's shards, with what their optimizers keep.
//
// Thread safety: every method may be called from any thread. Look-ups and reads run at once; while
// an update is applied they wait, so that they see all of it or nothing.
class EmbeddingStore {
 public:
  // Weights are zero, what optimizers keep is as it is before any update.
  static Status Make(std::shared_ptr<const EmbeddingPlan> plan, size_t rank,
                     std::shared_ptr<EmbeddingStore>* store);

  const std::shared_ptr<const EmbeddingPlan>& plan() const { return plan_; }
  size_t rank() const { return rank_; }

  // Requests to this rank; see EmbeddingRequests.
  Status Parse(Span<int64_t> buffer, Span<int64_t> splits, EmbeddingRequests* requests) const {
    return EmbeddingRequests::Parse(*plan_, rank_, buffer, splits, requests);
  }

  // Writes the weights of the rows that are requested, requests.values() numbers, of all tables in
  // one pass. With `permits` the look-up takes one of so many, see EmbeddingPermits, and fails if
  // there is none; 0: nobody counts.
  Status LookUp(const EmbeddingRequests& requests, float* values, uint64_t permits = 0);

  struct Step {
    Span<float> learning_rates;  // by table
    int64_t number = 1;          // of this update, from 1 on
    float scale = 1;             // that sums of gradients are multiplied by
    bool gives_permit = false;   // its look-up has taken one
  };

  // Applies each table's optimizer to each row that is requested, once. Gradients of one row are
  // summed in the order of senders. If anything is wrong, nothing is applied; what is not finite is
  // named by table and row.
  Status Update(const EmbeddingRequests& requests, Span<float> gradients, const Step& step);

  // Numbers in a row as Read and Write have it: weights, `with_slots` what the optimizer keeps too.
  // Fails unless the shard is one of this rank's.
  Status Width(size_t shard, bool with_slots, size_t* width) const;

  // Fails if the shard is not this rank's or lacks such rows.
  Status CheckRows(size_t shard, int64_t first_row, int64_t count) const {
    size_t mine = 0;
    return FindRows(shard, first_row, count, &mine);
  }

  // Copies rows, one behind the other. Both fail as CheckRows does.
  Status Read(size_t shard, int64_t first_row, int64_t count, bool with_slots, float* values) const;
  Status Write(size_t shard, int64_t first_row, int64_t count, bool with_slots,
               const float* values);

  void CountRouting(const EmbeddingRouting& routing) {
    ids_ += routing.ids();
    unique_rows_ += routing.rows();
  }
  EmbeddingStatistics statistics() const;

  // How many updates have been applied, which reads see then, or refused.
  uint64_t ended_updates() const { return ended_updates_; }

  // A copy; and has all permits there again.
  EmbeddingPermits permits() const;
  void ResetPermits();

 private:
  // A shard's summed gradients, in the memory that all shards share.
  struct Sums {
    std::vector<int64_t> rows;
    size_t begin = 0;
  };

  EmbeddingStore(std::shared_ptr<const EmbeddingPlan> plan, size_t rank)
      : plan_(std::move(plan)), rank_(rank), sums_(plan_->shards_of(rank).size()) {}

  // A shard by its place among this rank's.
  const EmbeddingShard& shard(size_t mine) const {
    return plan_->shards()[plan_->shards_of(rank_)[mine]];
  }
  const EmbeddingTable& table(size_t mine) const { return plan_->tables()[shard(mine).table]; }

  Status Apply(const EmbeddingRequests& requests, Span<float> gradients, const Step& step);
  Status FindRows(size_t number, int64_t first_row, int64_t count, size_t* mine) const;
  void SumShard(const EmbeddingRequests& requests, const float* gradients, size_t mine);
  Status ScaleSums(size_t mine, float scale);
  void ApplySums(size_t mine, const RowUpdate& update);

  const std::shared_ptr<const EmbeddingPlan> plan_;
  const size_t rank_;

  mutable std::shared_mutex mutex_;
  std::vector<EmbeddingRows> rows_;  // by shard of this rank; the numbers are guarded by mutex_

  mutable std::mutex counting_;  // Taken after mutex_.
  EmbeddingPermits permits_;     // Guarded by counting_.

  // What sums are made in. It is kept: memory that is new to a process costs more than the sums.
  std::mutex updating_;              // Taken before mutex_.
  EmbeddingIndex index_;             // Guarded by updating_, as what follows.
  std::vector<Sums> sums_;           // by shard of this rank
  std::unique_ptr<float[]> summed_;  // of all shards
  size_t room_ = 0;                  // in it

  std::atomic<uint64_t> ids_{0};
  std::atomic<uint64_t> unique_rows_{0};
  std::atomic<uint64_t> lookups_{0};
  std::atomic<uint64_t> rows_looked_up_{0};
  std::atomic<uint64_t> bytes_answered_{0};
  std::atomic<uint64_t> rows_updated_{0};
  std::atomic<uint64_t> updates_{0};
  std::atomic<uint64_t> ended_updates_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_STORE_H_
