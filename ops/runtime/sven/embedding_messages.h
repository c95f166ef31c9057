// What ranks say to each other that read and write each other's rows of embeddings.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_MESSAGES_H_

#include <cstdint>

#include "ops/runtime/net/message.h"

namespace trepak::embeddings {

constexpr MessageKind kRead = KindOf("embeddings", 1);   // a Request
constexpr MessageKind kWrite = KindOf("embeddings", 2);  // a Request, and its rows behind it
// Answers; `round` of their headers is the number of the request.
constexpr MessageKind kRows = KindOf("embeddings", 3);     // what was read
constexpr MessageKind kWritten = KindOf("embeddings", 4);  // it is
constexpr MessageKind kRefused = KindOf("embeddings", 5);  // why, as text
constexpr MessageKind kBehind = KindOf("embeddings", 6);   // wait: updates so far, as uint64_t
// The sender will ask for nothing more; it may still be asked.
constexpr MessageKind kDone = KindOf("embeddings", 7);

struct Request {
  uint64_t number = 0;   // of the sender's requests
  uint64_t updates = 0;  // that the answer must have seen
  uint32_t shard = 0;
  uint32_t with_slots = 0;  // 0 or 1
  int64_t first_row = 0;    // of the shard
  int64_t count = 0;        // rows
};

}  // namespace trepak::embeddings

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_MESSAGES_H_
