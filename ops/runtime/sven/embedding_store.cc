#include "ops/runtime/sven/embedding_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "ops/runtime/sven/embedding_access.h"

namespace trepak {
namespace {

// How many rows ahead memory is asked for: it takes about as long to come as these take.
constexpr size_t kAhead = 12;

constexpr char kInPart[] = ": an update is applied in part only; go on from the last checkpoint";

// Returns how many of them lie in the fast tier.
template <typename View>
uint64_t CopyRows(const View& from, Span<int64_t> rows, size_t columns, float* to) {
  uint64_t fast = 0;
  for (size_t i = 0; i < rows.size; ++i, to += columns) {
    if (i + 2 * kAhead < rows.size) {
      from.PrefetchPlace(rows[i + 2 * kAhead]);
    }
    if (i + kAhead < rows.size) {
      from.Prefetch(rows[i + kAhead]);
    }
    fast += from.IsFast(rows[i]) ? 1 : 0;
    std::memcpy(to, from.Row(rows[i]), columns * sizeof(float));
  }
  return fast;
}

// The compiler makes vector instructions of this one and of the next.
void AddGradient(size_t count, const float* __restrict__ gradient, float* __restrict__ sum) {
  for (size_t i = 0; i < count; ++i) {
    sum[i] += gradient[i];
  }
}

// Returns whether all are finite then: whether the difference of each to itself is zero.
bool ScaleFinite(size_t count, float scale, float* values) {
  int wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = values[i] * scale;
    values[i] = value;
    wrong |= value - value == 0 ? 0 : 1;
  }
  return wrong == 0;
}

}  // namespace

Status EmbeddingStore::Make(std::shared_ptr<const EmbeddingPlan> plan, size_t rank,
                            const TierOptions& tiers, std::shared_ptr<EmbeddingStore>* store) {
  if (rank >= plan->ranks()) {
    return InvalidArgumentError("there is no rank " + std::to_string(rank) + " of " +
                                std::to_string(plan->ranks()));
  }
  std::shared_ptr<EmbeddingStore> made(new EmbeddingStore(std::move(plan), rank));
  TREPAK_RETURN_IF_ERROR(made->MakeRows(tiers));
  *store = std::move(made);
  return OkStatus();
}

Status EmbeddingStore::LookUp(const EmbeddingRequests& requests, float* values, uint64_t permits) {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<int64_t> resolved;
  for (size_t sender = 0; sender < plan_->ranks(); ++sender) {
    for (size_t mine = 0; mine < rows_.size(); ++mine) {
      if (!rows_[mine].HasAllPlaces()) {
        TREPAK_RETURN_IF_ERROR(
            MakePlaces(mine, Resolve(mine, requests.part(sender, mine).rows, &resolved)));
      }
    }
  }
  if (permits != 0) {
    std::lock_guard<std::mutex> counting(counting_);
    TREPAK_RETURN_IF_ERROR(permits_.Take(permits));  // a lost device, which ends the job, keeps it
  }
  uint64_t fast = 0;
  for (size_t sender = 0; sender < plan_->ranks(); ++sender) {
    for (size_t mine = 0; mine < rows_.size(); ++mine) {
      const EmbeddingRequests::Part& part = requests.part(sender, mine);
      const auto columns = static_cast<size_t>(shard(mine).columns);
      float* to = values + part.values;
      const auto copy = [&](const auto& view, Span<int64_t> rows) {
        fast += CopyRows(view, rows, columns, to);
        to += rows.size * columns;
      };
      TREPAK_RETURN_IF_ERROR(
          AccessRows(rows_[mine], Resolve(mine, part.rows, &resolved), RowAccess::kRead, copy)
              .Annotate(NameOf(mine)));
    }
  }
  fast_rows_ += fast;
  ++lookups_;
  rows_looked_up_ += requests.rows();
  bytes_answered_ += requests.values() * sizeof(float);
  return OkStatus();
}

Status EmbeddingStore::Update(const EmbeddingRequests& requests, Span<float> gradients,
                              const Step& step) {
  Status status = Apply(requests, gradients, step);
  ++ended_updates_;
  return status;
}

Status EmbeddingStore::Apply(const EmbeddingRequests& requests, Span<float> gradients,
                             const Step& step) {
  if (gradients.size != requests.values()) {
    return InvalidArgumentError("the gradients of embeddings have " +
                                std::to_string(gradients.size) + " numbers, but the requests are " +
                                "for " + std::to_string(requests.values()));
  }
  if (step.learning_rates.size != plan_->tables().size()) {
    return InvalidArgumentError("there are " + std::to_string(step.learning_rates.size) +
                                " learning rates for " + std::to_string(plan_->tables().size()) +
                                " tables");
  }
  std::vector<RowUpdate> updates(rows_.size());
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    TREPAK_RETURN_IF_ERROR(RowUpdate::Make(table(mine).optimizer,
                                           step.learning_rates[shard(mine).table], step.number,
                                           &updates[mine])
                               .Annotate("embedding table '" + table(mine).name + "'"));
  }
  std::lock_guard<std::mutex> updating(updating_);
  if (room_ < requests.values()) {
    summed_.reset(new float[requests.values()]);
    room_ = requests.values();
  }
  size_t begin = 0;
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    sums_[mine].begin = begin;
    SumShard(requests, gradients.data, mine);
    TREPAK_RETURN_IF_ERROR(ScaleSums(mine, step.scale));
    begin += sums_[mine].rows.size() * static_cast<size_t>(shard(mine).columns);
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    TREPAK_RETURN_IF_ERROR(MakePlaces(mine, {sums_[mine].rows.data(), sums_[mine].rows.size()}));
  }
  if (step.gives_permit) {
    std::lock_guard<std::mutex> counting(counting_);
    TREPAK_RETURN_IF_ERROR(permits_.GiveBack());
  }
  for (size_t mine = 0; mine < rows_.size(); ++mine) {
    TREPAK_RETURN_IF_ERROR(ApplySums(mine, updates[mine]).Annotate(NameOf(mine) + kInPart));
  }
  ++updates_;
  return CountUpdate(requests).Annotate("embeddings" + std::string(kInPart));
}

Status EmbeddingStore::ApplySums(size_t mine, const RowUpdate& update) {
  const std::vector<int64_t>& all = sums_[mine].rows;
  const auto columns = static_cast<size_t>(shard(mine).columns);
  const float* sum = summed_.get() + sums_[mine].begin;
  rows_updated_ += all.size();
  return AccessRows(rows_[mine], {all.data(), all.size()}, RowAccess::kUpdate,
                    [&](const auto& view, Span<int64_t> rows) {
                      for (size_t i = 0; i < rows.size; ++i, sum += columns) {
                        if (i + 2 * kAhead < rows.size) {
                          view.PrefetchPlace(rows.data[i + 2 * kAhead]);
                        }
                        if (i + kAhead < rows.size) {
                          view.Prefetch(rows.data[i + kAhead]);
                        }
                        update.Apply(columns, sum, view.Row(rows.data[i]));
                      }
                    });
}

// Sums what senders bring for each row of a shard, in the order of senders.
void EmbeddingStore::SumShard(const EmbeddingRequests& requests, const float* gradients,
                              size_t mine) {
  const auto columns = static_cast<size_t>(shard(mine).columns);
  float* const sums = summed_.get() + sums_[mine].begin;
  size_t most = 0;
  for (size_t sender = 0; sender < plan_->ranks(); ++sender) {
    most += requests.part(sender, mine).rows.size;
  }
  index_.Reset(most);
  for (size_t sender = 0; sender < plan_->ranks(); ++sender) {
    const EmbeddingRequests::Part& part = requests.part(sender, mine);
    const float* gradient = gradients + part.values;
    for (const int64_t row : part.rows) {
      const size_t before = index_.count();
      const size_t number = index_.Number(admissions_[mine].Resolve(row));
      float* const sum = sums + number * columns;
      if (number == before) {
        std::memcpy(sum, gradient, columns * sizeof(float));
      } else {
        AddGradient(columns, gradient, sum);
      }
      gradient += columns;
    }
  }
  sums_[mine].rows.assign(index_.rows(), index_.rows() + index_.count());
}

Status EmbeddingStore::ScaleSums(size_t mine, float scale) {
  const auto columns = static_cast<size_t>(shard(mine).columns);
  const Sums& sums = sums_[mine];
  float* const begin = summed_.get() + sums.begin;
  if (ScaleFinite(sums.rows.size() * columns, scale, begin)) {
    return OkStatus();
  }
  size_t place = 0;
  while (std::isfinite(begin[place])) {
    ++place;
  }
  const int64_t in_shard = sums.rows[place / columns];
  const int64_t row = plan_->RowOfTable(plan_->shards_of(rank_)[mine], in_shard);
  const bool is_default = in_shard == shard(mine).rows;  // behind all others
  return InvalidArgumentError(
      "the gradient of " + (is_default ? "the default row" : "row " + std::to_string(row)) +
      " of embedding table '" + table(mine).name + "' is not finite; nothing has been applied");
}

EmbeddingStatistics EmbeddingStore::statistics() const {
  EmbeddingStatistics found;
  found.ids = ids_;
  found.unique_rows = unique_rows_;
  found.lookups = lookups_;
  found.rows_looked_up = rows_looked_up_;
  found.bytes_answered = bytes_answered_;
  found.rows_updated = rows_updated_;
  found.updates = updates_;
  found.fast_rows = fast_rows_;
  found.rows_dropped = rows_dropped_;
  std::shared_lock<std::shared_mutex> lock(mutex_);
  for (const EmbeddingRows& rows : rows_) {
    found.bytes += rows.bytes();
    found.fast_bytes += rows.fast_bytes();
    found.disk_bytes += rows.disk_bytes();
  }
  for (const EmbeddingAdmission& admission : admissions_) {
    found.rows_admitted += static_cast<uint64_t>(admission.admitted());
  }
  found.moves = tiers_.moves().in + tiers_.moves().out;
  found.evictions = tiers_.moves().out;
  return found;
}

EmbeddingPermits EmbeddingStore::permits() const {
  std::lock_guard<std::mutex> counting(counting_);
  return permits_;
}

void EmbeddingStore::ResetPermits() {
  std::lock_guard<std::mutex> counting(counting_);
  permits_.Reset();
}

}  // namespace trepak
