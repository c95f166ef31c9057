#include "ops/runtime/sven/embedding_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/runtime/sven/embedding_messages.h"

namespace trepak {

using embeddings::Request;

namespace {

// A rank that has asked for rows may ask for more so much later: it writes them to a file
// meanwhile.
constexpr std::chrono::milliseconds kMayAskAgain{10'000};
// One that has not may begin so much after others have ended: it makes a file of its own part
// first.
constexpr std::chrono::milliseconds kMayBegin{2'000};

Message MessageOf(MessageKind kind, const Request& request, const Payload& rows) {
  Message message;
  message.header.kind = kind;
  message.payload = Payload::Allocate(sizeof(request) + rows.size());
  auto* const bytes = static_cast<char*>(message.payload.mutable_data());
  std::memcpy(bytes, &request, sizeof(request));
  std::copy_n(static_cast<const char*>(rows.data()), rows.size(), bytes + sizeof(request));
  return message;
}

}  // namespace

EmbeddingPeer::EmbeddingPeer(const Options& options, const std::shared_ptr<EmbeddingStore>& store,
                             std::shared_ptr<ErrorLatch> errors)
    : Endpoint(options, std::move(errors)),
      store_(store),
      plan_(store->plan()),
      answers_(store),
      readers_(options.size) {
  readers_[options.rank].is_done = true;
}

void EmbeddingPeer::Read(const EmbeddingBlock& block, Callback callback) {
  Ask(embeddings::kRead, block, Payload(), std::move(callback));
}

void EmbeddingPeer::Write(const EmbeddingBlock& block, const Payload& rows, Callback callback) {
  Ask(embeddings::kWrite, block, rows, std::move(callback));
}

Status EmbeddingPeer::Check(const EmbeddingBlock& block) const {
  TREPAK_RETURN_IF_ERROR(error());
  if (block.shard >= plan_->shards().size()) {
    return InvalidArgumentError("there is no shard " + std::to_string(block.shard) +
                                " of embedding tables");
  }
  if (OwnerOf(block) == options().rank) {
    return InvalidArgumentError(Described(*plan_, block) + " are this rank's own, " + Me() +
                                ": take its store");
  }
  return OkStatus();
}

void EmbeddingPeer::Ask(MessageKind kind, const EmbeddingBlock& block, const Payload& rows,
                        Callback callback) {
  const std::shared_ptr<EmbeddingStore> own = store_.lock();
  Status status = Check(block);
  if (status.ok() && own == nullptr) {
    status = FailedPreconditionError("the embeddings' layer is gone on " + Me());
  }
  if (!status.ok()) {
    callback(status, Payload());
    return;
  }
  Request request;
  request.updates = own->ended_updates();
  request.shard = static_cast<uint32_t>(block.shard);
  request.with_slots = block.with_slots ? 1 : 0;
  request.first_row = block.first_row;
  request.count = block.count;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    request.number = next_++;
    Asked& asked = asked_[request.number];
    asked.block = block;
    asked.updates = request.updates;
    asked.is_write = kind == embeddings::kWrite;
    asked.callback = std::move(callback);
    asked.since = Clock::now();
  }
  status = Send(OwnerOf(block), {}, MessageOf(kind, request, rows));
  if (!status.ok()) {
    Fail(status);
  }
  if (!error().ok()) {  // it may have failed before this request was there to hear of it
    Failed(error());
  }
}

Status EmbeddingPeer::Handle(Message message) {
  const Header header = message.header;
  switch (header.kind) {
    case embeddings::kRead:
    case embeddings::kWrite:
      return TakeRequest(std::move(message));
    case embeddings::kRows:
    case embeddings::kWritten:
    case embeddings::kRefused:
      return TakeAnswer(message);
    case embeddings::kBehind:
      return TakeBehind(message);
    case embeddings::kDone: {
      std::shared_ptr<EmbeddingStore> unneeded;  // goes without the lock
      std::lock_guard<std::mutex> lock(mutex_);
      readers_[header.sender].is_done = true;
      unneeded = TakeUnneeded();
      changed_.notify_all();
      return OkStatus();
    }
    default:
      return Unexpected(header, "the owner of embeddings");
  }
}

Status EmbeddingPeer::TakeRequest(Message message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    readers_[message.header.sender].last = Clock::now();
  }
  EmbeddingAnswers::Answers answers;
  TREPAK_RETURN_IF_ERROR(answers_.Take(std::move(message), &answers));
  return SendAll(std::move(answers));
}

Status EmbeddingPeer::SendAll(EmbeddingAnswers::Answers answers) {
  for (EmbeddingAnswers::Answer& answer : answers) {
    TREPAK_RETURN_IF_ERROR(Send(answer.to, {}, std::move(answer.message)));
  }
  return OkStatus();
}

Status EmbeddingPeer::TakeAnswer(const Message& message) {
  const Header& header = message.header;
  const bool is_refused = header.kind == embeddings::kRefused;
  Asked asked;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = asked_.find(header.round);
    if (found == asked_.end() || OwnerOf(found->second.block) != header.sender ||
        (!is_refused && found->second.is_write != (header.kind == embeddings::kWritten))) {
      return Unexpected(header, "a reader of embeddings");
    }
    asked = std::move(found->second);
    asked_.erase(found);
  }
  const std::string who = "rank " + std::to_string(header.sender);
  const std::string what = Described(*plan_, asked.block);
  if (is_refused) {
    asked.callback(FailedPreconditionError(who + " refused " + what + ": " +
                                           std::string(message.payload.view())),
                   Payload());
    return OkStatus();
  }
  const size_t expected = asked.is_write ? 0 : BytesOf(*plan_, asked.block);
  Status status;
  if (message.payload.size() != expected) {
    status = InvalidArgumentError(who + " answered with " + std::to_string(message.payload.size()) +
                                  " bytes, not " + std::to_string(expected) + ", for " + what);
  }
  asked.callback(status, message.payload);
  return status;
}

Status EmbeddingPeer::TakeBehind(const Message& message) {
  uint64_t updates = 0;
  TREPAK_RETURN_IF_ERROR(ReadBody(message, &updates));
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = asked_.find(message.header.round);
  if (found == asked_.end()) {
    return Unexpected(message.header, "a reader of embeddings");
  }
  found->second.owners_updates = updates;
  return OkStatus();
}

Status EmbeddingPeer::Tick(Clock::time_point now) {
  EmbeddingAnswers::Answers answers;
  answers_.TakeReady(&answers);
  TREPAK_RETURN_IF_ERROR(SendAll(std::move(answers)));
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, asked] : asked_) {
    if (now - asked.since >= options().deadline) {
      return TooLate(asked);
    }
    if (HasLeft(OwnerOf(asked.block))) {
      return LeftWhileOthersGoOn(OwnerOf(asked.block));
    }
  }
  return OkStatus();
}

Status EmbeddingPeer::TooLate(const Asked& asked) const {
  std::string why = ", which does not answer";
  if (asked.owners_updates.has_value()) {
    why = ", which had applied " + std::to_string(*asked.owners_updates) + " updates, this rank " +
          std::to_string(asked.updates) + ": let all ranks train equally often";
  }
  return DeadlineExceededError("it waited " + std::to_string(options().deadline.count() / 1000) +
                               " s for " + Described(*plan_, asked.block) + " of rank " +
                               std::to_string(OwnerOf(asked.block)) + why);
}

void EmbeddingPeer::Failed(const Status& status) {
  std::map<uint64_t, Asked> asked;
  std::shared_ptr<EmbeddingStore> unneeded;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    asked.swap(asked_);
    unneeded = TakeUnneeded();
    changed_.notify_all();
  }
  for (auto& [number, one] : asked) {
    one.callback(status, Payload());
  }
}

void EmbeddingPeer::Retire(std::shared_ptr<EmbeddingStore> store) {
  SayDone();
  std::lock_guard<std::mutex> lock(mutex_);
  retired_ = std::move(store);
  store = TakeUnneeded();  // goes without the lock
}

void EmbeddingPeer::Leave() {
  if (is_connected() && error().ok()) {
    SayDone();
    std::unique_lock<std::mutex> lock(mutex_);
    const Clock::time_point least = Clock::now() - (kMayAskAgain - kMayBegin);
    for (Reader& reader : readers_) {
      reader.last = std::max(reader.last, least);
    }
    while (error().ok() && IsBeingRead()) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
  }
  Endpoint::Leave();
}

void EmbeddingPeer::SayDone() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (has_said_done_ || !is_connected()) {
      return;
    }
    has_said_done_ = true;
  }
  Message done;
  done.header.kind = embeddings::kDone;
  Broadcast(done);
}

std::shared_ptr<EmbeddingStore> EmbeddingPeer::TakeUnneeded() {
  const bool all_are_done = std::all_of(readers_.begin(), readers_.end(),
                                        [](const Reader& reader) { return reader.is_done; });
  std::shared_ptr<EmbeddingStore> unneeded;
  if (all_are_done || !is_connected() || !error().ok()) {
    unneeded.swap(retired_);
  }
  return unneeded;
}

bool EmbeddingPeer::IsBeingRead() const {
  const Clock::time_point now = Clock::now();
  return std::any_of(readers_.begin(), readers_.end(), [now](const Reader& reader) {
    return !reader.is_done && now - reader.last < kMayAskAgain;
  });
}

uint32_t EmbeddingPeer::OwnerOf(const EmbeddingBlock& block) const {
  return static_cast<uint32_t>(plan_->shards()[block.shard].rank);
}

}  // namespace trepak
