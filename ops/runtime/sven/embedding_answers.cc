#include "ops/runtime/sven/embedding_answers.h"

#include <cstring>
#include <string>
#include <utility>

namespace trepak {

using embeddings::Request;

Status EmbeddingAnswers::Take(Message message, Answers* answers) {
  const uint32_t sender = message.header.sender;
  Waiting waiting;
  if (message.payload.size() < sizeof(Request)) {
    return InvalidArgumentError("rank " + std::to_string(sender) + " asked for embeddings in " +
                                std::to_string(message.payload.size()) + " bytes, too few");
  }
  std::memcpy(&waiting.request, message.payload.data(), sizeof(Request));
  const uint64_t number = waiting.request.number;
  const uint64_t updates = waiting.request.updates;
  waiting.message = std::move(message);
  waiting_.push_back(std::move(waiting));
  const std::shared_ptr<EmbeddingStore> store = store_.lock();
  const uint64_t so_far = store == nullptr ? updates : store->ended_updates();
  if (so_far < updates) {
    Message behind = MessageOf(embeddings::kBehind, so_far);
    behind.header.round = number;
    answers->push_back({sender, std::move(behind)});
  }
  TakeReady(answers);
  return OkStatus();
}

void EmbeddingAnswers::TakeReady(Answers* answers) {
  if (waiting_.empty()) {
    return;
  }
  const std::shared_ptr<EmbeddingStore> store = store_.lock();
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& one : waiting) {
    if (store != nullptr && one.request.updates > store->ended_updates()) {
      waiting_.push_back(std::move(one));
      continue;
    }
    Message answer = AnswerTo(one, store.get());
    answer.header.round = one.request.number;
    answers->push_back({one.message.header.sender, std::move(answer)});
  }
}

Message EmbeddingAnswers::AnswerTo(const Waiting& waiting, EmbeddingStore* store) const {
  Message answer;
  Status status;
  if (store == nullptr) {
    status = FailedPreconditionError(
        "its layer is gone: keep the layer on all ranks until the others have read its tables, "
        "with hvd.barrier() at the end");
  } else {
    status = Access(waiting, store, &answer.payload);
  }
  if (!status.ok()) {
    answer.header.kind = embeddings::kRefused;
    answer.payload = Payload::Copy(status.message());
  } else if (waiting.message.header.kind == embeddings::kRead) {
    answer.header.kind = embeddings::kRows;
    answer.header.type = ElementType::kFloat32;
  } else {
    answer.header.kind = embeddings::kWritten;
  }
  return answer;
}

// Reads or writes what was asked for, of which nothing has been checked yet.
Status EmbeddingAnswers::Access(const Waiting& waiting, EmbeddingStore* store,
                                Payload* rows) const {
  const Request& request = waiting.request;
  TREPAK_RETURN_IF_ERROR(store->CheckRows(request.shard, request.first_row, request.count));
  const EmbeddingBlock block{request.shard, request.first_row, request.count,
                             request.with_slots != 0};
  const size_t bytes = BytesOf(*store->plan(), block);
  if (block.count > 1 && bytes > EmbeddingBlock::kMostBytes) {
    return InvalidArgumentError(Described(*store->plan(), block) + " are " + std::to_string(bytes) +
                                " bytes, more than " + std::to_string(EmbeddingBlock::kMostBytes) +
                                ": ask for fewer rows at once");
  }
  if (waiting.message.header.kind == embeddings::kRead) {
    *rows = Payload::Allocate(bytes);
    return store->Read(block.shard, block.first_row, block.count, block.with_slots,
                       static_cast<float*>(rows->mutable_data()));
  }
  const Payload& payload = waiting.message.payload;
  const size_t given = payload.size() - sizeof(request);
  if (given != bytes) {
    return InvalidArgumentError(Described(*store->plan(), block) + " are " + std::to_string(bytes) +
                                " bytes, but " + std::to_string(given) + " came");
  }
  const char* const values = static_cast<const char*>(payload.data()) + sizeof(request);
  return store->Write(block.shard, block.first_row, block.count, block.with_slots,
                      reinterpret_cast<const float*>(values));
}

}  // namespace trepak
