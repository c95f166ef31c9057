#include "ops/runtime/chicle/chunk_move.h"

#include <algorithm>
#include <utility>

namespace trepak {
namespace {

// Remedies.
constexpr const char* kAsOften = ": move chunks on all ranks, and as often";
constexpr const char* kSameLedger = ": make the moves of all ranks from the same ledger";

std::string NameOfRank(uint32_t rank) { return "rank " + std::to_string(rank); }
std::string ForTask(uint32_t task) { return " for task " + std::to_string(task); }
std::string InMove(uint64_t number) { return " in move " + std::to_string(number); }

std::string ListOfRanks(const std::set<uint32_t>& ranks) {
  std::string list;
  for (const uint32_t rank : ranks) {
    list += (list.empty() ? "" : ", ") + std::to_string(rank);
  }
  return list;
}

}  // namespace

std::string ChunkMove::InThisMove() const { return InMove(number_); }

Status ChunkMove::Plan(const std::vector<OutgoingChunk>& outgoing,
                       const std::vector<ExpectedChunk>& expected) {
  for (const ExpectedChunk& one : expected) {
    if (one.rank >= ranks_ || !gotten_.try_emplace(one.id, Gotten{one, nullptr}).second) {
      return InvalidArgumentError(NameOfChunk(one.id) + " is expected twice, or from " +
                                  NameOfRank(one.rank) + " of " + std::to_string(ranks_) + "," +
                                  InThisMove() + kSameLedger);
    }
  }
  for (const OutgoingChunk& one : outgoing) {
    if (one.chunk == nullptr) {
      return InvalidArgumentError("what is to go to " + NameOfRank(one.rank) + ForTask(one.task) +
                                  InThisMove() + " is no chunk: keep chunks until they have moved");
    }
    const uint64_t id = one.chunk->id();
    if (one.rank >= ranks_ || !given_.try_emplace(id, Given{one.rank, one.chunk}).second) {
      return InvalidArgumentError(NameOfChunk(id) + " is to go twice, or to " +
                                  NameOfRank(one.rank) + " of " + std::to_string(ranks_) + "," +
                                  InThisMove() + kSameLedger);
    }
  }
  missing_ = given_.size() + gotten_.size();
  return OkStatus();
}

Status ChunkMove::Accept(const ComingChunk& coming) {
  const uint64_t id = coming.chunk->id();
  const std::string sent =
      NameOfRank(coming.rank) + " sent " + NameOfChunk(id) + ForTask(coming.task) + InThisMove();
  const auto found = gotten_.find(id);
  if (found == gotten_.end()) {
    return InvalidArgumentError(sent + ", which this rank does not expect" + kSameLedger);
  }
  const ExpectedChunk& expected = found->second.expected;
  if (expected.rank != coming.rank || expected.task != coming.task) {
    return InvalidArgumentError(sent + ", which this rank expects from " +
                                NameOfRank(expected.rank) + ForTask(expected.task) + kSameLedger);
  }
  if (found->second.chunk != nullptr) {
    return InvalidArgumentError(sent + " twice" + kSameLedger);
  }
  found->second.chunk = coming.chunk;
  --missing_;
  return OkStatus();
}

Status ChunkMove::Acknowledge(uint32_t rank, uint64_t id) {
  const auto given = given_.find(id);
  if (given == given_.end() || given->second.rank != rank || given->second.chunk == nullptr) {
    return InvalidArgumentError(NameOfRank(rank) + " says that it has taken " + NameOfChunk(id) +
                                InThisMove() + ", which this rank has not sent it" + kSameLedger);
  }
  given->second.chunk = nullptr;
  --missing_;
  return OkStatus();
}

Status ChunkMove::CheckOrder(uint64_t later, const ComingChunk& coming) const {
  const auto awaited = std::find_if(gotten_.begin(), gotten_.end(), [&coming](const auto& one) {
    return one.second.chunk == nullptr && one.second.expected.rank == coming.rank;
  });
  return awaited == gotten_.end()
             ? OkStatus()
             : InvalidArgumentError(NameOfRank(coming.rank) + " sent " +
                                    NameOfChunk(coming.chunk->id()) + InMove(later) +
                                    " while this rank waits for its " +
                                    NameOfChunk(awaited->first) + InThisMove() + kAsOften);
}

std::set<uint32_t> ChunkMove::givers() const {
  std::set<uint32_t> ranks;
  for (const auto& [id, gotten] : gotten_) {
    if (gotten.chunk == nullptr) {
      ranks.insert(gotten.expected.rank);
    }
  }
  return ranks;
}

std::set<uint32_t> ChunkMove::takers() const {
  std::set<uint32_t> ranks;
  for (const auto& [id, given] : given_) {
    if (given.chunk != nullptr) {
      ranks.insert(given.rank);
    }
  }
  return ranks;
}

std::string ChunkMove::Awaited() const {
  const auto is_missing = [](const auto& one) { return one.second.chunk == nullptr; };
  const auto gotten = std::find_if(gotten_.begin(), gotten_.end(), is_missing);
  const auto given = std::find_if_not(given_.begin(), given_.end(), is_missing);
  std::string what;
  if (gotten != gotten_.end()) {
    what = "for chunks of ranks " + ListOfRanks(givers()) + " (" + NameOfChunk(gotten->first) + ")";
  }
  if (given != given_.end()) {
    what += what.empty() ? "" : " and ";
    what += "for ranks " + ListOfRanks(takers()) + " to take chunks (" + NameOfChunk(given->first) +
            ")";
  }
  return what + InThisMove() + kAsOften;
}

std::vector<ArrivedChunk> ChunkMove::End() {
  std::vector<ArrivedChunk> arrived;
  for (auto& [id, gotten] : gotten_) {
    if (gotten.chunk != nullptr) {
      arrived.push_back({gotten.expected.task, std::move(gotten.chunk)});
    }
  }
  given_.clear();
  gotten_.clear();
  missing_ = 0;
  return arrived;
}

}  // namespace trepak
