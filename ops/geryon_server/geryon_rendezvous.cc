#include "ops/geryon_server/geryon_rendezvous.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/request_id.h"
#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/distributed_runtime/worker_session.h"

namespace trepak {
namespace {

using tensorflow::Rendezvous;

// The edge by which tasks ask each other for the addresses of their flows, and a step of its own.
constexpr char kAddressEdge[] = "trepak/flows";
constexpr int64_t kAddressStep = std::numeric_limits<int64_t>::max();
constexpr int64_t kAddressMilliseconds = 10'000;

// One tensor that is fetched from another task: by flows, or by gRPC as TensorFlow does.
//
// Thread safety: every method may be called from any thread; Start once.
class RemoteCall : public tensorflow::BaseRecvTensorCall,
                   public std::enable_shared_from_this<RemoteCall> {
 public:
  RemoteCall(int64_t step, const Rendezvous::ParsedKey& key, const Rendezvous::Args& args,
             TensorExchange* exchange, GeryonPeers* peers)
      : step_(step), key_(key), args_(args), exchange_(exchange), peers_(peers) {}
  ~RemoteCall() override {
    if (worker_ != nullptr) {
      cache_->ReleaseWorker(task_, worker_);
    }
  }

  // Finds the task and this one's device.
  absl::Status Prepare(tensorflow::WorkerSession* session) {
    if (!tensorflow::DeviceNameUtils::SplitDeviceName(key_.src_device, &task_, &device_name_)) {
      return absl::InternalError("no device is called " + std::string(key_.src_device));
    }
    cache_ = session->GetSharedWorkerCache();
    worker_ = cache_->GetOrCreateWorker(task_);
    if (worker_ == nullptr) {
      return absl::InternalError("there is no task " + task_);
    }
    return session->device_mgr()->LookupDevice(key_.dst_device, &device_);
  }

  void Start(std::function<void()> done) override {
    done_ = std::move(done);
    const bool on_host = args_.alloc_attrs.on_host() || key_.dst.type == "CPU";
    if (exchange_ == nullptr || !on_host) {
      FetchByGrpc();
      return;
    }
    const auto self = shared_from_this();
    peers_->Find(
        Name(), [self](auto answer) { self->AskForAddress(std::move(answer)); },
        [self](const ExchangeAddress* where) {
          where == nullptr ? self->FetchByGrpc() : self->FetchByFlow(*where);
        });
  }

  void StartAbort(const absl::Status& status) override {
    uint64_t number = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      status_.Update(status);
      number = number_;
    }
    if (number != 0) {
      exchange_->Forget(number, status);
    }
    options_.StartCancel();
  }

  absl::Status status() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return status_;
  }

  const Rendezvous::Args& args() const { return args_; }
  const tensorflow::Tensor& tensor() const { return found_.tensor; }
  bool is_dead() const { return found_.is_dead; }

 private:
  std::string Name() const { return task_ + " " + std::to_string(key_.src_incarnation); }

  void FetchByFlow(const ExchangeAddress& where) {
    const auto self = shared_from_this();
    const uint64_t number =
        exchange_->Fetch(where, step_, std::string(key_.FullKey()), [self](const Found& found) {
          if (found.lost) {
            self->peers_->GiveUp(self->Name());
          }
          if (found.status.ok() && !found.carried) {
            self->FetchByGrpc();
          } else {
            self->Finish(found);
          }
        });
    absl::Status status;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      number_ = number;
      status = status_;
    }
    if (!status.ok()) {
      exchange_->Forget(number, status);
    }
  }

  void FetchByGrpc() {
    if (!status().ok()) {  // the step was aborted meanwhile
      Finish(Found());
      return;
    }
    PrepareRequest(step_, std::string(key_.FullKey()));
    response_.InitAlloc(device_, args_.alloc_attrs);
    const auto self = shared_from_this();
    worker_->RecvTensorAsync(&options_, &request_, &response_, [self](const absl::Status& status) {
      Found found;
      found.status = status;
      if (status.ok()) {
        found.tensor = self->response_.tensor();
        found.is_dead = self->response_.metadata().is_dead();
      }
      self->Finish(found);
    });
    if (!status().ok()) {  // before there was a call to cancel
      options_.StartCancel();
    }
  }

  void AskForAddress(std::function<void(const std::string&)> answer) {
    struct Question {
      tensorflow::CallOptions options;
      tensorflow::RecvTensorRequest request;
      tensorflow::TensorResponse response;
    };
    auto question = std::make_shared<Question>();
    PrepareRequest(kAddressStep,
                   Rendezvous::CreateKey(std::string(key_.src_device), key_.src_incarnation,
                                         std::string(key_.dst_device), kAddressEdge,
                                         tensorflow::FrameAndIter(0, 0)));
    question->request.Swap(&request_);
    question->options.SetTimeout(kAddressMilliseconds);
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    question->response.InitAlloc(device_, on_host);
    const auto self = shared_from_this();  // keeps the worker
    worker_->RecvTensorAsync(&question->options, &question->request, &question->response,
                             [self, question, answer](const absl::Status& status) {
                               if (!status.ok()) {
                                 LOG(WARNING) << "trepak: tensors of " << self->task_
                                              << " travel by gRPC, it does not say where its "
                                                 "flows are: "
                                              << status;
                               }
                               const tensorflow::Tensor& bytes = question->response.tensor();
                               answer(status.ok() ? std::string(bytes.tensor_data()) : "");
                             });
  }

  // ClusterCoordinator tells by these words, which TensorFlow's own gRPC adds, whose failure it is.
  absl::Status WithTask(const absl::Status& status) const {
    if (!absl::IsUnavailable(status) || absl::StrContains(status.message(), "remote target")) {
      return status;
    }
    return absl::UnavailableError(absl::StrCat(
        status.message(), "\nAdditional GRPC error information from remote target ", task_, ":"));
  }

  void PrepareRequest(int64_t step, const std::string& key) {
    request_.Clear();
    request_.set_step_id(step);
    request_.set_rendezvous_key(key);
    request_.set_request_id(tensorflow::GetUniqueRequestId());
  }

  void Finish(const Found& found) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      status_.Update(WithTask(found.status));
    }
    found_ = found;
    std::function<void()> done = std::move(done_);
    done();
  }

  const int64_t step_;
  const Rendezvous::ParsedKey key_;
  const Rendezvous::Args args_;
  TensorExchange* const exchange_;
  GeryonPeers* const peers_;
  std::string task_;
  std::string device_name_;
  std::shared_ptr<tensorflow::WorkerCacheInterface> cache_;
  tensorflow::WorkerInterface* worker_ = nullptr;
  tensorflow::Device* device_ = nullptr;
  std::function<void()> done_;
  tensorflow::CallOptions options_;
  tensorflow::RecvTensorRequest request_;
  tensorflow::TensorResponse response_;
  Found found_;

  mutable std::mutex mutex_;
  absl::Status status_;  // Guarded by mutex_.
  uint64_t number_ = 0;  // Guarded by mutex_; of the exchange's request.
};

class GeryonRemoteRendezvous : public tensorflow::BaseRemoteRendezvous {
 public:
  GeryonRemoteRendezvous(const tensorflow::WorkerEnv* env, int64_t step, TensorExchange* exchange,
                         GeryonPeers* peers)
      : BaseRemoteRendezvous(env, step), exchange_(exchange), peers_(peers) {}

 protected:
  void RecvFromRemoteAsync(const Rendezvous::ParsedKey& key, const Rendezvous::Args& args,
                           Rendezvous::DoneCallback done) override {
    auto call = std::make_shared<RemoteCall>(step_id_, key, args, exchange_, peers_);
    absl::Status status = call->Prepare(session());
    if (!status.ok()) {
      done(status, Rendezvous::Args(), args, tensorflow::Tensor(), false);
      return;
    }
    RegisterCall(call.get(), args);  // so that it ends when the step is aborted
    status = call->status();
    if (!status.ok()) {
      DeregisterCall(call.get(), args);
      done(status, Rendezvous::Args(), args, tensorflow::Tensor(), false);
      return;
    }
    Ref();
    call->Start([this, call, done = std::move(done)] {
      DeregisterCall(call.get(), call->args());
      done(call->status(), Rendezvous::Args(), call->args(), call->tensor(), call->is_dead());
      Unref();
    });
  }

 private:
  TensorExchange* const exchange_;
  GeryonPeers* const peers_;
};

bool CanTravel(const Rendezvous::Args& sent, const tensorflow::Tensor& tensor) {
  const bool on_host = sent.device_context == nullptr || sent.alloc_attrs.on_host();
  return on_host && tensorflow::DataTypeCanUseMemcpy(tensor.dtype()) &&
         tensor.TotalBytes() <= TensorExchange::kMostBytes;
}

}  // namespace

void GeryonPeers::Find(const std::string& name, const Asker& ask, Callback callback) {
  const ExchangeAddress* where = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[name];
    if (!peer.known) {
      peer.waiting.push_back(std::move(callback));
      if (peer.waiting.size() > 1) {
        return;
      }
    } else {
      where = peer.where.get();
    }
  }
  if (callback) {
    callback(where);  // addresses stay where they are, also when they are given up
    return;
  }
  ask([this, name](const std::string& bytes) {
    auto address = std::make_unique<ExchangeAddress>();
    std::vector<Callback> waiting;
    const ExchangeAddress* found = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Peer& peer = peers_[name];
      peer.known = true;
      if (address->Decode(bytes)) {
        peer.where = std::move(address);
        found = peer.where.get();
      }
      waiting.swap(peer.waiting);
    }
    for (const Callback& one : waiting) {
      one(found);
    }
  });
}

void GeryonPeers::GiveUp(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[name];
  if (peer.where != nullptr) {
    given_up_.push_back(std::move(peer.where));
  }
}

GeryonRendezvousMgr::GeryonRendezvousMgr(const tensorflow::WorkerEnv* env, const std::string& host)
    : BaseRendezvousMgr(env) {
  if (host.empty()) {
    LOG(ERROR) << "trepak: this task's name in the cluster leads to no address that the others can "
                  "reach: all its tensors travel by gRPC";
    return;
  }
  const Status status = TensorExchange::Start(
      host,
      [this](int64_t step, const std::string& key, auto found) { FindTensor(step, key, found); },
      [env](std::function<void()> work) { env->compute_pool->Schedule(std::move(work)); },
      &exchange_);
  if (!status.ok()) {
    LOG(ERROR) << "trepak: this task has no flows, all tensors travel by gRPC: "
               << status.message();
  }
}

void GeryonRendezvousMgr::RecvLocalAsync(int64_t step, const Rendezvous::ParsedKey& key,
                                         Rendezvous::DoneCallback done) {
  if (key.edge_name != kAddressEdge) {
    BaseRendezvousMgr::RecvLocalAsync(step, key, std::move(done));
    return;
  }
  const std::string bytes = exchange_ == nullptr ? "" : exchange_->here().Encode();
  tensorflow::Tensor tensor(tensorflow::DT_UINT8, {static_cast<int64_t>(bytes.size())});
  std::copy(bytes.begin(), bytes.end(), tensor.flat<uint8_t>().data());
  Rendezvous::Args args;
  args.alloc_attrs.set_on_host(true);
  done(absl::OkStatus(), args, Rendezvous::Args(), tensor, false);
}

void GeryonRendezvousMgr::FindTensor(int64_t step, const std::string& text,
                                     const TensorExchange::Callback& callback) {
  Rendezvous::ParsedKey key;
  Found none;
  none.status = Rendezvous::ParseKey(text, &key);
  if (!none.status.ok()) {
    callback(none);
    return;
  }
  // Kept until then: if the step ends meanwhile, what is handed back must go to what is left of it,
  // not to a new one that nobody would end.
  const std::shared_ptr<tensorflow::RemoteRendezvous> rendezvous(
      BaseRendezvousMgr::Find(step).release(), [](auto* owned) { owned->Unref(); });
  static_cast<tensorflow::BaseRemoteRendezvous*>(rendezvous.get())
      ->RecvLocalAsync(
          key, [rendezvous, key, callback](const absl::Status& status, const Rendezvous::Args& sent,
                                           const Rendezvous::Args&,
                                           const tensorflow::Tensor& tensor, bool is_dead) {
            Found found;
            found.status = status;
            found.tensor = tensor;
            found.is_dead = is_dead;
            found.carried = is_dead || CanTravel(sent, tensor);
            if (status.ok() && !found.carried) {
              // It is asked for again, by gRPC.
              found.status = rendezvous->Send(key, sent, tensor, is_dead);
            }
            callback(found);
          });
}

tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous> GeryonRendezvousMgr::Create(
    int64_t step, const tensorflow::WorkerEnv* env) {
  return tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous>(
      new GeryonRemoteRendezvous(env, step, exchange_.get(), &peers_));
}

}  // namespace trepak
