// Chicle's moves of chunks, as a system: a mover on each rank.

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/numbered.h"
#include "ops/runtime/chicle/chunk_mover.h"
#include "ops/session_ops.h"

namespace trepak {

void from_json(const Json& given, OutgoingChunk& one) {
  one.rank = given.at("rank").get<uint32_t>();
  one.task = given.at("task").get<uint32_t>();
  one.chunk = Numbered<Chunk>::Global().Find(given.at("chunk").get<int64_t>());
}

void from_json(const Json& given, ExpectedChunk& one) {
  one.id = given.at("id").get<uint64_t>();
  one.rank = given.at("rank").get<uint32_t>();
  one.task = given.at("task").get<uint32_t>();
}

namespace {

Status Make(const System::Opening& opening, Session::Parts* parts) {
  const Endpoint::Options about = opening.job.endpoint();
  Session::Part part;
  part.endpoint = std::make_shared<ChunkMover>(about, std::make_shared<ErrorLatch>());
  for (const uint32_t rank : AllRanks(about.size)) {
    if (rank != about.rank) {  // between its own tasks chunks need no flow
      part.members.push_back(rank);
    }
  }
  part.dscp = {opening.job.dscp.back()};
  TREPAK_RETURN_IF_ERROR(CarrierFrom(opening.options, "a mover of chunks", &part.carrier));
  parts->push_back(std::move(part));
  return OkStatus();
}

Json Statistics(const Session& session) {
  const auto mover = session.Find<ChunkMover>(0);
  const ChunkMover::Counters c = mover == nullptr ? ChunkMover::Counters{} : mover->counters();
  return {{"moves", c.moves},
          {"chunks_sent", c.chunks_sent},
          {"bytes_sent", c.bytes_sent},
          {"bytes_sent_over_ucx", c.bytes_beside},
          {"chunks_received", c.chunks_received},
          {"bytes_received", c.bytes_received},
          {"bytes_copied", c.bytes_copied},
          {"waiting_seconds", c.waiting_seconds}};
}

struct Moved {
  Status status;
  std::vector<ArrivedChunk> arrived;
};

// Returns what has arrived, in any case, and why the move failed, or nothing. Outgoing chunks keep
// their numbers: if it did not fail, it is the caller's to drop them.
absl::Status MoveChunks(const Arguments& given, Json* result) {
  const auto session = Sessions::Global().Find(ChunkMover::kSystem, given.Get<uint32_t>("session"));
  const auto mover = session == nullptr ? nullptr : session->Find<ChunkMover>(0);
  if (mover == nullptr) {
    return ToFlowError(Sessions::Global().NotOpen(ChunkMover::kSystem));
  }
  const auto promise = std::make_shared<std::promise<Moved>>();
  mover->Move(given.Get<std::vector<OutgoingChunk>>("outgoing"),
              given.Get<std::vector<ExpectedChunk>>("expected"),
              [promise](const Status& status, std::vector<ArrivedChunk> arrived) {
                promise->set_value({status, std::move(arrived)});
              });
  Moved moved = promise->get_future().get();
  Json arrived = Json::array();
  for (ArrivedChunk& one : moved.arrived) {
    arrived.push_back({{"id", one.chunk->id()}, {"task", one.task}});
    arrived.back()["chunk"] = Numbered<Chunk>::Global().Add(std::move(one.chunk));
  }
  *result = {{"arrived", std::move(arrived)}, {"failure", nullptr}};
  if (!moved.status.ok()) {
    (*result)["failure"] = std::string(ToFlowError(moved.status).message());
  }
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = Sessions::Global().Register(
    ChunkMover::kSystem, {"Chicle's mover of chunks", Make, Statistics, {}});

[[maybe_unused]] const bool kCallsRegistered = RegisterCalls({{"chicle_move", MoveChunks}});

}  // namespace
}  // namespace trepak
