// Moves tensors between the tasks of a TensorFlow cluster, on flows of Geryon's priorities.

#ifndef TREPAK_OPS_GERYON_EXCHANGE_H_
#define TREPAK_OPS_GERYON_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "horovod_ext/runtime/flow.h"
#include "horovod_ext/runtime/handshake.h"
#include "horovod_ext/runtime/map_table.h"
#include "horovod_ext/runtime/transport.h"
#include "tensorflow/core/framework/tensor.h"

namespace trepak {

// What a task must know of another to open flows to it. Its bytes travel by gRPC.
struct ExchangeAddress {
  uint32_t id = 0;        // drawn at random: a task that was started anew is another one
  Secret secret{};        // what proves that somebody was told
  std::string transport;  // see Transport::address

  std::string Encode() const;
  // False if the bytes are none.
  bool Decode(std::string_view bytes);
};

// A tensor that was asked for, or why there is none.
struct Found {
  absl::Status status;
  tensorflow::Tensor tensor;
  bool is_dead = false;  // TensorFlow's: of a branch that was not taken
  bool carried = true;   // false: it must be asked for by gRPC
};

// A task asks another for a tensor, by step and key; the answer comes on the flow of the tensor's
// priority when there is one. Flows are opened when they are first needed.
//
// Thread safety: every method may be called from any thread. Callbacks run on TensorFlow's threads
// and may block.
class TensorExchange : public Transport::Receiver {
 public:
  using Callback = std::function<void(const Found&)>;
  // Calls back when the task itself has made the tensor.
  using Finder = std::function<void(int64_t step, const std::string& key, Callback)>;
  // Runs something on one of TensorFlow's threads.
  using Scheduler = std::function<void(std::function<void()>)>;

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
  void OnTick() override {}

 private:
  struct Peer {
    bool opening = false;
    Status failure;
    ExchangeAddress where;
    std::vector<std::unique_ptr<Flow>> flows;          // by priority, once they are open
    std::vector<std::pair<uint8_t, Message>> waiting;  // until then
  };
  struct Asked {
    uint32_t task = 0;
    Callback callback;
    Found found;  // what its first message says
  };

  TensorExchange(Finder finder, Scheduler scheduler);

  void Know(const ExchangeAddress& where);
  // Sends messages one after the other, opening the flows before if need be. The address must be
  // known.
  void Send(uint32_t task, uint8_t priority, std::vector<Message> messages);
  void Open(uint32_t task);
  Status TakeAddress(const Message& message);
  Status Answer(const Message& request);
  Status TakeAnswer(const Message& message);
  uint8_t PriorityOf(const std::string& key, const tensorflow::Tensor& tensor);
  void Finish(uint64_t number, const Found& found);
  void Fail(uint32_t task, const Status& status);

  const Finder finder_;
  const Scheduler scheduler_;
  ExchangeAddress here_;
  MapTable map_table_;
  SequenceCheck sequences_;  // of the transport's thread

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<uint32_t, Peer> peers_;  // by id
  std::map<uint64_t, Asked> asked_;
  uint64_t next_number_ = 1;

  std::unique_ptr<Transport> transport_;  // the last: its thread uses all the others
};

}  // namespace trepak

#endif  // TREPAK_OPS_GERYON_EXCHANGE_H_
