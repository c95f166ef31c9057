// Which rows of a store lie in its fast tier (thesis, section 6.1.3).

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_TIERS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_TIERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_device.h"
#include "ops/runtime/sven/embedding_rows.h"
#include "ops/runtime/sven/embedding_scores.h"
#include "ops/runtime/sven/embedding_selection.h"

namespace trepak {

// What memory one rank's rows lie in. Without a folder and a device there are no tiers.
struct TierOptions {
  std::string folder;       // of the slow tier's files; empty: that is memory
  uint64_t fast_bytes = 0;  // of the fast tier; where each row lies takes 4 bytes of memory a row
  // Whose memory the fast tier is, and no other store's; null: the host's.
  std::shared_ptr<EmbeddingDevice> device;

  bool exist() const { return !folder.empty() || device != nullptr; }
};

// What a store counts of its rows.
struct RowScoring {
  RowPolicy policy = RowPolicy::kNone;
  double decay = 0.01;
  // Whether requesters send what each row's samples weigh (see Score in embedding_store.h); else a
  // row occurs once for each rank's batch that is trained.
  bool by_importance = false;
};

// Which rows are to lie in the fast tier.
struct RowPlacement {
  bool is_random = false;  // else those with the largest scores
  uint64_t seed = 0;       // of what is random
};

// What a placement has come to, of one rank.
struct PlacedRows {
  uint64_t rows = 0;       // of all tables
  uint64_t fast_rows = 0;  // of these, in the fast tier
  double scores = 0;       // the sum of all rows' scores, if there are any
  double fast_scores = 0;
  EmbeddingRows::Moves moves;
};

// Places rows of all shards of one rank, and has their scores. Owns the scores, not the rows.
//
// Thread safety: needs outside locking; what places rows must be alone with them.
class EmbeddingTiers {
 public:
  // The numbers of a shard's rows are known by its place in `rows`, which stays the same.
  //
  // Before anything is known of rows, each shard has the same part of its first rows in the fast
  // tier.
  Status PlaceFirst(const TierOptions& tiers, std::vector<EmbeddingRows>* rows);

  // Places the rows of all shards together: how much memory a shard gets follows from them.
  Status Place(const RowPlacement& placement, std::vector<EmbeddingRows>* rows, PlacedRows* placed);

  // Within each shard, rows with larger scores take the place of others.
  Status Replace(std::vector<EmbeddingRows>* rows, PlacedRows* placed);

  Status Track(const RowScoring& scoring, const std::vector<EmbeddingRows>& rows);
  EmbeddingScores& scores() { return scores_; }
  bool counts_updates() const { return scores_.is_active() && !by_importance_; }
  bool counts_importance() const { return scores_.is_active() && by_importance_; }

  // Since the start: rows that came into the fast tier, and left it.
  const EmbeddingRows::Moves& moves() const { return moves_; }

 private:
  Status MoveAll(const ChosenRows& chosen, std::vector<EmbeddingRows>* rows, PlacedRows* placed);
  Status MoveShard(const std::vector<bool>& chosen, EmbeddingRows* rows, PlacedRows* placed);
  void Sum(const std::vector<EmbeddingRows>& rows, PlacedRows* placed) const;

  uint64_t fast_bytes_ = 0;
  EmbeddingScores scores_;
  bool by_importance_ = false;
  EmbeddingRows::Moves moves_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_TIERS_H_
