#include "ops/runtime/chicle/chunk_mover.h"

#include <string>

namespace trepak {
namespace {

uint32_t LowerHalfOf(uint64_t id) { return static_cast<uint32_t>(id); }

Message MessageOfMove(MessageKind kind, uint64_t number, uint32_t task, uint64_t id) {
  Message message = MessageOf(kind, id);
  message.header.round = number;
  message.header.key = task;
  message.header.slice = LowerHalfOf(id);
  return message;
}

Status DamagedChunk(const Header& header, const Status& why) {
  const std::string sender = "rank " + std::to_string(header.sender);
  return InvalidArgumentError(
      sender + " sent, as chunk " + std::to_string(header.slice) + " for task " +
      std::to_string(header.key) + " in move " + std::to_string(header.round) +
      ", what can't be taken: " + std::string(why.message()) +
      ". The sender still has the chunk: " +
      "move it again in a new session; if that fails as well, test the memory of both hosts");
}

}  // namespace

void ChunkMover::Move(const std::vector<OutgoingChunk>& outgoing,
                      const std::vector<ExpectedChunk>& expected, Callback callback) {
  Status status;
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!callback_) {
      number = next_++;
      move_ = ChunkMove(number, options().size);
      since_ = heard_ = Clock::now();
      is_sending_ = true;
      callback_.swap(callback);
      status = error();
      if (status.ok()) {
        status = Begin(outgoing, expected);
      }
    }
  }
  if (callback) {
    callback(FailedPreconditionError(Me() + " moves chunks already: let that move end first"), {});
    return;
  }
  if (status.ok()) {
    status = SendAll(number, outgoing);
  }
  if (!status.ok()) {
    Fail(status.Annotate(Me()));  // the others wait for chunks that will not come
  }
  Settle(error());  // it may have failed before this move was there to hear of it
}

Status ChunkMover::Begin(const std::vector<OutgoingChunk>& outgoing,
                         const std::vector<ExpectedChunk>& expected) {
  const uint32_t me = options().rank;
  TREPAK_RETURN_IF_ERROR(move_.Plan(outgoing, expected));
  for (const OutgoingChunk& one : outgoing) {
    if (one.rank == me) {
      TREPAK_RETURN_IF_ERROR(move_.Accept({me, one.task, one.chunk}));
      TREPAK_RETURN_IF_ERROR(move_.Acknowledge(me, one.chunk->id()));
    }
  }
  if (const auto early = early_.extract(move_.number())) {
    for (const ComingChunk& coming : early.mapped()) {
      TREPAK_RETURN_IF_ERROR(Accept(coming));
    }
  }
  for (const auto& [number, comings] : early_) {
    for (const ComingChunk& coming : comings) {
      TREPAK_RETURN_IF_ERROR(move_.CheckOrder(number, coming));
    }
  }
  return OkStatus();
}

// Without the lock: what others send is taken while this rank computes checksums.
Status ChunkMover::SendAll(uint64_t number, const std::vector<OutgoingChunk>& outgoing) {
  for (const OutgoingChunk& one : outgoing) {
    TREPAK_RETURN_IF_ERROR(error());
    if (one.rank == options().rank) {
      continue;
    }
    Message message = MessageOfMove(chicle::kChunk, number, one.task, one.chunk->id());
    message.payload = one.chunk->Stamped();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++counters_.chunks_sent;
      counters_.bytes_sent += message.payload.size();
      counters_.bytes_beside += GoesBesideFlow(one.rank, 0) ? message.payload.size() : 0;
    }
    TREPAK_RETURN_IF_ERROR(Send(one.rank, {}, std::move(message)));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  is_sending_ = false;
  heard_ = Clock::now();
  return OkStatus();
}

Status ChunkMover::Handle(Message message) {
  switch (message.header.kind) {
    case chicle::kChunk:
      TREPAK_RETURN_IF_ERROR(TakeChunk(std::move(message)));
      break;
    case chicle::kTaken:
      TREPAK_RETURN_IF_ERROR(TakeAcknowledgement(message));
      break;
    default:
      return Unexpected(message.header, "a mover of chunks");
  }
  Settle(OkStatus());
  return OkStatus();
}

Status ChunkMover::TakeChunk(Message message) {
  const Header header = message.header;
  const size_t bytes = message.payload.size();
  const bool is_placed = Chunk::IsPlaced(message.payload);
  ComingChunk coming{header.sender, header.key, nullptr};
  Status status = Chunk::Adopt(std::move(message.payload), &coming.chunk);
  if (status.ok() && LowerHalfOf(coming.chunk->id()) != header.slice) {
    status = WrongChunk(coming.chunk->id(), "it is another one");
  }
  if (!status.ok()) {
    return DamagedChunk(header, status);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.chunks_received;
  counters_.bytes_received += bytes;
  counters_.bytes_copied += is_placed ? 0 : bytes;
  if (header.round + 1 == next_) {  // if that move is over, nothing more is expected of it
    return Accept(coming);
  }
  if (header.round < next_) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) + " sent chunk " +
                                std::to_string(coming.chunk->id()) + " in move " +
                                std::to_string(header.round) +
                                ", which is over on this rank: move chunks on all ranks, and as "
                                "often");
  }
  early_[header.round].push_back(coming);
  return callback_ ? move_.CheckOrder(header.round, coming) : OkStatus();
}

Status ChunkMover::Accept(const ComingChunk& coming) {
  TREPAK_RETURN_IF_ERROR(move_.Accept(coming));
  heard_ = Clock::now();
  return Send(coming.rank, {},
              MessageOfMove(chicle::kTaken, move_.number(), coming.task, coming.chunk->id()));
}

Status ChunkMover::TakeAcknowledgement(const Message& message) {
  uint64_t id = 0;
  TREPAK_RETURN_IF_ERROR(ReadBody(message, &id));
  std::lock_guard<std::mutex> lock(mutex_);
  if (!callback_ || message.header.round != move_.number()) {
    return Unexpected(message.header, "a mover of chunks");
  }
  heard_ = Clock::now();
  return move_.Acknowledge(message.header.sender, id);
}

void ChunkMover::Settle(const Status& failure) {
  Callback callback;
  std::vector<ArrivedChunk> arrived;
  Status status = failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool is_over = move_.is_over() && !is_sending_;
    if (!callback_ || (!is_over && failure.ok())) {
      return;
    }
    status = is_over ? OkStatus() : failure;
    callback.swap(callback_);
    arrived = move_.End();
    ++counters_.moves;
    counters_.waiting_seconds += std::chrono::duration<double>(Clock::now() - since_).count();
  }
  callback(status, std::move(arrived));
}

void ChunkMover::Failed(const Status& status) { Settle(status); }

Status ChunkMover::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!callback_ || is_sending_ || move_.is_over()) {
    return OkStatus();
  }
  if (now - heard_ >= options().deadline) {  // of each chunk, not of all together
    return DeadlineExceededError("it waited " + std::to_string(options().deadline.count() / 1000) +
                                 " s " + move_.Awaited());
  }
  for (const auto& ranks : {move_.givers(), move_.takers()}) {
    for (const uint32_t rank : ranks) {
      if (HasLeft(rank)) {
        return LeftWhileOthersGoOn(rank);
      }
    }
  }
  return OkStatus();
}

ChunkMover::Counters ChunkMover::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace trepak
