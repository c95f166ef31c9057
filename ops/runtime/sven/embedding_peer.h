// Rows of embeddings that another rank has, read and written without that rank's program.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PEER_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PEER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ops/runtime/net/endpoint.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/sven/embedding_answers.h"
#include "ops/runtime/sven/embedding_block.h"
#include "ops/runtime/sven/embedding_store.h"

namespace trepak {

// One rank saves a model while the others wait for its next step, so the transport's thread answers
// for them. A rank that asks may be a step's end ahead of the one that it asks: an answer waits
// until its rank has applied, or refused, as many updates as the rank that asked.
//
// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block. Does not own the store, unless it
// is handed over to Retire; without one, requests are refused.
class EmbeddingPeer : public Endpoint {
 public:
  static constexpr const char* kSystem = "embeddings";
  // With the rows that were read.
  using Callback = std::function<void(const Status&, const Payload&)>;

  // `store`: of this rank; all ranks' have the same plan.
  EmbeddingPeer(const Options& options, const std::shared_ptr<EmbeddingStore>& store,
                std::shared_ptr<ErrorLatch> errors);
  ~EmbeddingPeer() override { Stop(); }

  const EmbeddingPlan& plan() const { return *plan_; }

  // Reads rows of another rank's shard.
  void Read(const EmbeddingBlock& block, Callback callback);

  // Sets rows of another rank's shard; done when that rank has them.
  void Write(const EmbeddingBlock& block, const Payload& rows, Callback callback);

  // Keeps the store, which this rank needs no more, for as long as others may read it: until they
  // have all said that they don't need theirs either.
  void Retire(std::shared_ptr<EmbeddingStore> store);

  // Stays first for as long as others go on asking for this rank's rows, or may begin to.
  void Leave() override;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  // What this rank has asked for.
  struct Asked {
    EmbeddingBlock block;
    uint64_t updates = 0;
    bool is_write = false;
    Callback callback;
    Clock::time_point since;
    std::optional<uint64_t> owners_updates;  // if the owner has said that it is behind
  };
  // How long another rank asks for this one's rows.
  struct Reader {
    Clock::time_point last;
    bool is_done = false;
  };

  Status Check(const EmbeddingBlock& block) const;
  void Ask(MessageKind kind, const EmbeddingBlock& block, const Payload& rows, Callback callback);
  Status TakeRequest(Message message);
  Status TakeAnswer(const Message& message);
  Status TakeBehind(const Message& message);
  Status SendAll(EmbeddingAnswers::Answers answers);
  uint32_t OwnerOf(const EmbeddingBlock& block) const;
  Status TooLate(const Asked& asked) const;
  void SayDone();
  // These require mutex_.
  bool IsBeingRead() const;
  std::shared_ptr<EmbeddingStore> TakeUnneeded();

  const std::weak_ptr<EmbeddingStore> store_;
  const std::shared_ptr<const EmbeddingPlan> plan_;
  EmbeddingAnswers answers_;  // Of the transport's thread.

  std::mutex mutex_;
  // All guarded by mutex_.
  std::condition_variable changed_;  // readers_, or this peer has failed
  std::map<uint64_t, Asked> asked_;  // by number
  uint64_t next_ = 0;
  std::vector<Reader> readers_;  // by rank
  bool has_said_done_ = false;
  std::shared_ptr<EmbeddingStore> retired_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_PEER_H_
