// TensorFlow's rendezvous, with tensors of other tasks fetched by Geryon's flows (section IV).

#ifndef TREPAK_OPS_GERYON_SERVER_GERYON_RENDEZVOUS_H_
#define TREPAK_OPS_GERYON_SERVER_GERYON_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/geryon_server/geryon_exchange.h"
#include "tensorflow/core/distributed_runtime/base_rendezvous_mgr.h"
#include "tensorflow/core/distributed_runtime/worker_env.h"

namespace trepak {

// Where other tasks' flows begin, as they said when they were first asked.
//
// Thread safety: every method may be called from any thread.
class GeryonPeers {
 public:
  // Gets null for a task that has no flows: it is reached by gRPC alone.
  using Callback = std::function<void(const ExchangeAddress*)>;
  // Asks a task; calls back with its answer's bytes, empty if there is none.
  using Asker = std::function<void(std::function<void(const std::string&)>)>;

  // Calls back with a task's address, asking the task itself if it is not known yet. `name` tells a
  // task that was started anew from the one before.
  void Find(const std::string& name, const Asker& ask, Callback callback);

  // From now on the task has no flows.
  void GiveUp(const std::string& name);

 private:
  struct Peer {
    bool known = false;
    std::unique_ptr<ExchangeAddress> where;
    std::vector<Callback> waiting;
  };

  std::mutex mutex_;
  // Both guarded by mutex_.
  std::map<std::string, Peer> peers_;
  std::vector<std::unique_ptr<ExchangeAddress>> given_up_;  // somebody may still read them
};

// Thread safety: as TensorFlow's. `env` must outlive it, as a server's does.
class GeryonRendezvousMgr : public tensorflow::BaseRendezvousMgr {
 public:
  // `host`: the address at which this task listens for flows; empty if there is none.
  GeryonRendezvousMgr(const tensorflow::WorkerEnv* env, const std::string& host);

  // Also answers those who ask for this task's flows.
  void RecvLocalAsync(int64_t step, const tensorflow::Rendezvous::ParsedKey& key,
                      tensorflow::Rendezvous::DoneCallback done) override;

 protected:
  tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous> Create(
      int64_t step, const tensorflow::WorkerEnv* env) override;

 private:
  // Finds a tensor that another task asks for by a flow.
  void FindTensor(int64_t step, const std::string& key, const TensorExchange::Callback& callback);

  GeryonPeers peers_;
  std::unique_ptr<TensorExchange> exchange_;  // null if this task can't listen
};

}  // namespace trepak

#endif  // TREPAK_OPS_GERYON_SERVER_GERYON_RENDEZVOUS_H_
