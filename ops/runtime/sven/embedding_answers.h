// What a rank answers others that ask for its rows of embeddings.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ANSWERS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ANSWERS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/sven/embedding_block.h"
#include "ops/runtime/sven/embedding_messages.h"
#include "ops/runtime/sven/embedding_store.h"

namespace trepak {

// A request waits until the store has applied as many updates as its sender wants to see. Whatever
// else is wrong with one is told to its sender alone.
//
// Thread safety: none; one thread uses it. Does not own the store: when that is closed, requests
// are refused.
class EmbeddingAnswers {
 public:
  struct Answer {
    uint32_t to = 0;  // rank
    Message message;
  };
  using Answers = std::vector<Answer>;

  explicit EmbeddingAnswers(const std::shared_ptr<EmbeddingStore>& store) : store_(store) {}

  // Takes a request of kind kRead or kWrite. Adds what is to be sent now: answers, or that the
  // sender must wait. Fails if the message can't be a request.
  Status Take(Message message, Answers* answers);

  // Adds answers to those who wait no more.
  void TakeReady(Answers* answers);

 private:
  struct Waiting {
    embeddings::Request request;
    Message message;
  };

  Message AnswerTo(const Waiting& waiting, EmbeddingStore* store) const;
  Status Access(const Waiting& waiting, EmbeddingStore* store, Payload* rows) const;

  const std::weak_ptr<EmbeddingStore> store_;
  std::deque<Waiting> waiting_;  // in the order of their coming
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ANSWERS_H_
