// Moves tensors between the tasks of a TensorFlow cluster, on flows of Geryon's priorities.

#ifndef TREPAK_OPS_GERYON_SERVER_GERYON_EXCHANGE_H_
#define TREPAK_OPS_GERYON_SERVER_GERYON_EXCHANGE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/geryon_server/geryon_wire.h"
#include "ops/runtime/net/flow.h"
#include "ops/runtime/net/transport.h"

namespace trepak {

// A task asks another for a tensor, by step and key; the answer comes on the flow of the tensor's
// priority when there is one. Flows are opened when they are first needed. A task that is asked
// looks for nothing before its own flows, the way back, are open: until then the asking one can
// turn to gRPC, and does so after a while. Later, tasks that owe answers are asked whether they are
// there.
//
// Thread safety: every method may be called from any thread. Callbacks run on TensorFlow's threads
// and may block.
class TensorExchange : public Transport::Receiver {
 public:
  using Callback = std::function<void(const Found&)>;
  // Calls back when the task itself has made the tensor.
  using Finder = std::function<void(int64_t step, const std::string& key, Callback)>;
  // Runs something on one of TensorFlow's threads; it doesn't take long.
  using Scheduler = std::function<void(std::function<void()>)>;

  static constexpr size_t kMostBytes = size_t{1} << 30;  // of a tensor

  // Listens at `host`.
  static Status Start(const std::string& host, Finder finder, Scheduler scheduler,
                      std::unique_ptr<TensorExchange>* exchange);
  ~TensorExchange() override;

  const ExchangeAddress& here() const { return here_; }

  // Asks the task at `where` for a tensor. Returns a number for `Forget`.
  uint64_t Fetch(const ExchangeAddress& where, int64_t step, const std::string& key,
                 Callback callback);

  // The answer is not wanted any more; the callback gets `status` if it has not been called.
  void Forget(uint64_t number, const absl::Status& status);

  // By priority, bytes of tensors that all exchanges of this process have sent.
  static std::vector<uint64_t> BytesByPriority();

  void OnMessage(Message message) override;
  void OnFailure(uint32_t task, const Status& status) override;
  void OnTick() override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    bool opening = false;
    Status failure;
    ExchangeAddress where;
    std::vector<std::unique_ptr<Flow>> flows;          // by priority, once they are open
    std::vector<std::pair<uint8_t, Message>> waiting;  // until then
    std::vector<Message> requests;                     // of the peer, held until then
    bool ever_heard = false;
    Clock::time_point heard;  // or since when it could be
    Clock::time_point greeted;
  };
  struct Asked {
    uint32_t task = 0;
    Callback callback;
    Found found;  // what its first message says
  };

  TensorExchange(Finder finder, Scheduler scheduler);

  void Know(const ExchangeAddress& where);
  // Says who this task is; `asks`: the peer shall say so, too.
  void Introduce(uint32_t task, bool asks);
  // Sends messages one after the other, opening the flows before if need be. The address must be
  // known.
  void Send(uint32_t task, uint8_t priority, std::vector<Message> messages);
  void Open(uint32_t task);
  Status TakeAddress(const Message& message);
  Status TakeRequest(Message request);
  Status Answer(const Message& request);
  Status TakeAnswer(const Message& message);
  void Finish(uint64_t number, const Found& found);
  void Fail(uint32_t task, const Status& status);

  const Finder finder_;
  const Scheduler scheduler_;
  ExchangeAddress here_;
  SequenceCheck sequences_;  // of the transport's thread

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<uint32_t, Peer> peers_;  // by id
  std::map<uint64_t, Asked> asked_;
  uint64_t next_number_ = 1;
  int opening_ = 0;  // threads that open flows
  std::condition_variable opened_;

  std::unique_ptr<Transport> transport_;  // the last: its thread uses all the others
};

}  // namespace trepak

#endif  // TREPAK_OPS_GERYON_SERVER_GERYON_EXCHANGE_H_
