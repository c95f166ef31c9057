// One rank's part of the embeddings of a layer.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_STORE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_admission.h"
#include "ops/runtime/sven/embedding_index.h"
#include "ops/runtime/sven/embedding_permits.h"
#include "ops/runtime/sven/embedding_plan.h"
#include "ops/runtime/sven/embedding_requests.h"
#include "ops/runtime/sven/embedding_routing.h"
#include "ops/runtime/sven/embedding_rows.h"
#include "ops/runtime/sven/embedding_tiers.h"

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
  uint64_t bytes = 0;          // of rows, touched or not, in memory and in files
  uint64_t fast_bytes = 0;     // of these in the fast tier
  uint64_t disk_bytes = 0;     // that files have taken
  uint64_t fast_rows = 0;      // that were looked up there
  uint64_t moves = 0;          // of rows between tiers
  uint64_t evictions = 0;      // of these, out of the fast tier
  uint64_t rows_admitted = 0;  // now, of tables with a min_count
  uint64_t rows_dropped = 0;   // since their table had its limit of them
};

// Owns the rows of one rank's shards, with what their optimizers keep.
//
// Thread safety: every method may be called from any thread. Look-ups and reads run at once; while
// an update is applied they wait, so that they see all of it or nothing.
class EmbeddingStore {
 public:
  // Weights are zero, what optimizers keep is as it is before any update. Where rows lie changes
  // no number that anybody gets.
  static Status Make(std::shared_ptr<const EmbeddingPlan> plan, size_t rank,
                     const TierOptions& tiers, std::shared_ptr<EmbeddingStore>* store);
  static Status Make(std::shared_ptr<const EmbeddingPlan> plan, size_t rank,
                     std::shared_ptr<EmbeddingStore>* store) {
    return Make(std::move(plan), rank, TierOptions(), store);
  }

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

  // What follows is in embedding_store_blocks.cc.

  // Numbers in a row as Read and Write have it; see EmbeddingPlan::WidthOf.
  // Fails unless the shard is one of this rank's.
  Status Width(size_t shard, bool with_slots, size_t* width) const;

  // Fails if the shard is not this rank's or lacks such rows. One row behind the last is there if
  // the table has a min_count: the default row, see EmbeddingAdmission.
  Status CheckRows(size_t shard, int64_t first_row, int64_t count) const {
    size_t mine = 0;
    return FindRows(shard, first_row, count, &mine);
  }

  // Copies rows, one behind the other. Both fail as CheckRows does.
  Status Read(size_t shard, int64_t first_row, int64_t count, bool with_slots, float* values) const;
  Status Write(size_t shard, int64_t first_row, int64_t count, bool with_slots,
               const float* values);

  // What follows is in embedding_store_tiers.cc, and waits until nobody uses rows.

  // From now on rows have scores, from zero on.
  Status Track(const RowScoring& scoring);
  // Places the rows of all tables by their scores or at random; see EmbeddingTiers.
  Status Place(const RowPlacement& placement, PlacedRows* placed);
  // Lets rows with larger scores take others' place in the fast tier.
  Status Replace(PlacedRows* placed);
  // A step has weighed the samples of each row that is requested: p k + n l of equation 6.3, one
  // number for each row of the requests, in their order. Nothing happens unless rows are tracked by
  // importance.
  Status Score(const EmbeddingRequests& requests, Span<float> importance);

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

  Status MakeRows(const TierOptions& tiers);
  Status InitialiseRows(size_t mine);
  Span<int64_t> Resolve(size_t mine, Span<int64_t> rows, std::vector<int64_t>* resolved) const;
  Status MakePlaces(size_t mine, Span<int64_t> rows) const;
  Status CountUpdate(const EmbeddingRequests& requests);
  Status DropRows(size_t mine);
  Status Restart(size_t mine, const std::vector<int64_t>& dropped);
  std::string NameOf(size_t mine) const;
  Status Apply(const EmbeddingRequests& requests, Span<float> gradients, const Step& step);
  Status FindRows(size_t number, int64_t first_row, int64_t count, size_t* mine) const;
  void SumShard(const EmbeddingRequests& requests, const float* gradients, size_t mine);
  Status ScaleSums(size_t mine, float scale);
  Status ApplySums(size_t mine, const RowUpdate& update);

  const std::shared_ptr<const EmbeddingPlan> plan_;
  const size_t rank_;

  mutable std::shared_mutex mutex_;
  std::vector<EmbeddingRows> rows_;  // by shard of this rank; guarded by mutex_, as what follows
  std::vector<EmbeddingAdmission> admissions_;  // by shard of this rank
  EmbeddingTiers tiers_;

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
  std::atomic<uint64_t> fast_rows_{0};
  std::atomic<uint64_t> rows_dropped_{0};
  std::atomic<uint64_t> ended_updates_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_STORE_H_
