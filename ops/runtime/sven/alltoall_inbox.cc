#include "ops/runtime/sven/alltoall_inbox.h"

#include <algorithm>

namespace trepak {
namespace {

std::string Described(const AlltoallRows& rows) {
  return "rows of " + std::to_string(rows.row_elements) + " elements of type " +
         std::to_string(static_cast<int>(rows.type));
}

}  // namespace

AlltoallExchange& AlltoallInbox::At(const Id& id) {
  AlltoallExchange& exchange = exchanges_[id];
  if (exchange.splits.empty()) {
    exchange.splits.resize(size_);
    exchange.rows.resize(size_);
    exchange.missing = size_;
  }
  return exchange;
}

Status AlltoallInbox::Put(uint32_t from, const Id& id, const AlltoallRows& rows, Payload split) {
  const auto progress = progress_.find(id.first);
  const bool is_past = progress != progress_.end() && id.second < progress->second.next;
  if (is_past || At(id).splits[from].has_value()) {
    return InvalidArgumentError("rank " + std::to_string(from) +
                                " sent a split of an alltoall twice");
  }
  AlltoallExchange& exchange = At(id);
  for (uint32_t rank = 0; rank < size_; ++rank) {
    const AlltoallRows& others = exchange.rows[rank];
    if (exchange.splits[rank].has_value() &&
        (others.type != rows.type || others.row_elements != rows.row_elements)) {
      const bool is_first = from < rank;  // whoever sees it first says the same
      return InvalidArgumentError("in an alltoall rank " + std::to_string(is_first ? from : rank) +
                                  " sends " + Described(is_first ? rows : others) + " and rank " +
                                  std::to_string(is_first ? rank : from) + " " +
                                  Described(is_first ? others : rows) +
                                  ": give all ranks tensors of one dtype whose dimensions but the "
                                  "first are equal");
    }
  }
  exchange.rows[from] = rows;
  held_ += from == rank_ ? 0 : alltoall::BytesOf(split);
  most_held_ = std::max(most_held_, held_);
  exchange.splits[from] = std::move(split);
  if (from == rank_) {
    exchange.scattered = AlltoallExchange::Clock::now();
  }
  if (--exchange.missing == 0) {
    exchange.complete = AlltoallExchange::Clock::now();
    exchange.last = from;
  }
  return OkStatus();
}

AlltoallExchange AlltoallInbox::Remove(const Id& id) {
  const auto found = exchanges_.find(id);
  AlltoallExchange exchange = std::move(found->second);
  exchanges_.erase(found);
  std::vector<size_t> bytes;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    bytes.push_back(alltoall::BytesOf(*exchange.splits[rank]));
    held_ -= rank == rank_ ? 0 : bytes.back();
  }
  Progress& progress = progress_[id.first];
  progress.beyond[id.second] = std::move(bytes);
  Count(id.first, &progress);
  return exchange;
}

void AlltoallInbox::Count(uint32_t key, Progress* progress) {
  auto& beyond = progress->beyond;
  for (; !beyond.empty() && beyond.begin()->first == progress->next; ++progress->next) {
    for (uint32_t rank = 0; rank < size_; ++rank) {
      by_peer_[rank].bytes += beyond.begin()->second[rank];
      by_peer_[rank].taken[key] = progress->next + 1;
    }
    beyond.erase(beyond.begin());
  }
}

std::vector<alltoall::Iterations> AlltoallInbox::Report(uint32_t peer, size_t least) {
  std::vector<alltoall::Iterations> report;
  Peer& of = by_peer_[peer];
  if (of.bytes >= least) {
    for (const auto& [key, iterations] : of.taken) {
      report.push_back({key, iterations});
    }
    of = Peer();
  }
  return report;
}

}  // namespace trepak
