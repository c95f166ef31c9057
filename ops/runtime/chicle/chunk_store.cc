#include "ops/runtime/chicle/chunk_store.h"

namespace trepak {
Status ChunkStore::Add(std::shared_ptr<Chunk> chunk) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t id = chunk->id();
  TREPAK_RETURN_IF_ERROR(CheckThatSchedulerOwnsLocked(NameOfChunk(id) + " can't come"));
  if (!chunks_.emplace(id, std::move(chunk)).second) {
    return AlreadyExistsError(NameOfChunk(id) + " comes to a task that has it");
  }
  ++version_;
  return OkStatus();
}

Status ChunkStore::Take(uint64_t id, std::shared_ptr<Chunk>* chunk) {
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(CheckThatSchedulerOwnsLocked(NameOfChunk(id) + " can't leave"));
  const auto found = chunks_.find(id);
  if (found == chunks_.end()) {
    return NotFoundError(NameOfChunk(id) + " can't leave a task that does not have it");
  }
  const auto digest = digests_.find(id);
  if (digest != digests_.end() && digest->second != found->second->Digest()) {
    return FailedPreconditionError(NameOfChunk(id) + " was written to between iterations");
  }
  *chunk = std::move(found->second);
  chunks_.erase(found);
  digests_.erase(id);
  ++version_;
  return OkStatus();
}

Status ChunkStore::Begin(bool checked) {
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(CheckThatSchedulerOwnsLocked("an iteration can't begin"));
  if (checked) {
    for (const auto& [id, digest] : digests_) {
      if (chunks_.at(id)->Digest() != digest) {
        return FailedPreconditionError(NameOfChunk(id) +
                                       " was written to between iterations: only the "
                                       "task may, during one");
      }
    }
  }
  digests_.clear();
  in_iteration_ = true;
  return OkStatus();
}

Status ChunkStore::End(bool checked) {
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(CheckThatTaskOwnsLocked("no iteration can end"));
  in_iteration_ = false;
  if (checked) {
    for (const auto& [id, chunk] : chunks_) {
      digests_[id] = chunk->Digest();
    }
  }
  return OkStatus();
}

Status ChunkStore::CheckThatTaskOwns(const std::string& what) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return CheckThatTaskOwnsLocked(what);
}

Status ChunkStore::CheckThatSchedulerOwns(const std::string& what) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return CheckThatSchedulerOwnsLocked(what);
}

Status ChunkStore::CheckThatTaskOwnsLocked(const std::string& what) const {
  return in_iteration_ ? OkStatus()
                       : FailedPreconditionError(what +
                                                 ": the scheduler owns a task's chunks "
                                                 "until its next iteration begins");
}

Status ChunkStore::CheckThatSchedulerOwnsLocked(const std::string& what) const {
  return in_iteration_
             ? FailedPreconditionError(what + ": the task owns its chunks until its iteration ends")
             : OkStatus();
}

Status ChunkStore::Commit() {
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(CheckThatSchedulerOwnsLocked("nothing can be committed"));
  for (const auto& [id, chunk] : chunks_) {
    chunk->Commit();
    if (const auto digest = digests_.find(id); digest != digests_.end()) {
      digest->second = chunk->Digest();
    }
  }
  return OkStatus();
}

void ChunkStore::Restore() {
  std::lock_guard<std::mutex> lock(mutex_);
  in_iteration_ = false;
  digests_.clear();
  for (const auto& [id, chunk] : chunks_) {
    chunk->Restore();
  }
}

ChunkStore::Chunks ChunkStore::chunks() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Chunks chunks;
  chunks.reserve(chunks_.size());
  for (const auto& [id, chunk] : chunks_) {
    chunks.push_back(chunk);
  }
  return chunks;
}

uint64_t ChunkStore::version() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return version_;
}

}  // namespace trepak
