#include "ops/runtime/sven/embedding_requests.h"

#include <limits>
#include <string>

namespace trepak {
namespace {

// Fails if a row is not in the shard.
Status CheckRows(const EmbeddingPlan& plan, size_t shard, Span<int64_t> rows) {
  const auto beyond = static_cast<uint64_t>(plan.shards()[shard].rows);
  for (size_t i = 0; i < rows.size; ++i) {
    if (static_cast<uint64_t>(rows[i]) >= beyond) {
      return InvalidArgumentError("its row " + std::to_string(i) + " of shard " +
                                  std::to_string(shard) + " is " + std::to_string(rows[i]) +
                                  ", but the shard has " + std::to_string(beyond) + " rows");
    }
  }
  return OkStatus();
}

}  // namespace

Status EmbeddingRequests::Parse(const EmbeddingPlan& plan, size_t rank, Span<int64_t> buffer,
                                Span<int64_t> splits, EmbeddingRequests* requests) {
  if (splits.size != plan.ranks()) {
    return InvalidArgumentError("requests must come from " + std::to_string(plan.ranks()) +
                                " ranks, but are of " + std::to_string(splits.size));
  }
  *requests = EmbeddingRequests();
  requests->shards_ = plan.shards_of(rank).size();
  requests->parts_.reserve(plan.ranks() * requests->shards_);
  Span<int64_t> rest = buffer;
  for (size_t sender = 0; sender < splits.size; ++sender) {
    const int64_t size = splits[sender];
    if (size < 0 || static_cast<uint64_t>(size) > rest.size) {
      return InvalidArgumentError("the request of rank " + std::to_string(sender) + " is said to " +
                                  "have " + std::to_string(size) + " numbers, but " +
                                  std::to_string(rest.size) + " are left");
    }
    const auto used = static_cast<size_t>(size);
    TREPAK_RETURN_IF_ERROR(requests->ParseOne(plan, rank, {rest.data, used})
                               .Annotate("the request of rank " + std::to_string(sender)));
    rest = {rest.data + used, rest.size - used};
  }
  if (rest.size > 0) {
    return InvalidArgumentError("behind the ranks' requests there are " +
                                std::to_string(rest.size) + " numbers of none");
  }
  return OkStatus();
}

Status EmbeddingRequests::ParseOne(const EmbeddingPlan& plan, size_t rank, Span<int64_t> request) {
  if (request.size < shards_) {
    return InvalidArgumentError("it ends after " + std::to_string(request.size) + " of " +
                                std::to_string(shards_) + " counts");
  }
  const size_t before = values_;
  size_t place = shards_;
  for (size_t i = 0; i < shards_; ++i) {
    const size_t shard = plan.shards_of(rank)[i];
    const int64_t count = request[i];
    if (count < 0 || static_cast<uint64_t>(count) > request.size - place) {
      return InvalidArgumentError("it asks for " + std::to_string(count) + " rows of shard " +
                                  std::to_string(shard) + ", but has only " +
                                  std::to_string(request.size - place) + " more numbers");
    }
    const Part part = {{request.data + place, static_cast<size_t>(count)}, values_};
    TREPAK_RETURN_IF_ERROR(CheckRows(plan, shard, part.rows));
    parts_.push_back(part);
    place += part.rows.size;
    rows_ += part.rows.size;
    values_ += part.rows.size * static_cast<size_t>(plan.shards()[shard].columns);
  }
  if (place != request.size) {
    return InvalidArgumentError("it has " + std::to_string(request.size) + " numbers, but asks " +
                                "with only " + std::to_string(place));
  }
  if (rows_ >= std::numeric_limits<uint32_t>::max()) {
    return InvalidArgumentError("with it there are too many rows: " + std::to_string(rows_));
  }
  value_splits_.push_back(static_cast<int64_t>(values_ - before));
  return OkStatus();
}

}  // namespace trepak
