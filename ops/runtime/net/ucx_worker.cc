#include "ops/runtime/net/ucx_worker.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace trepak {
namespace {

constexpr unsigned kMessages = 1;  // the only kind of active messages
constexpr int kStepsPerTurn = 64;
constexpr const char* kInMemory = "sm,self";
constexpr const char* kUnlessAsked = "^tcp";  // which has no guard

bool MayUseSharedMemory(const std::string& transports) {
  static const std::set<std::string> in_memory{"all", "sm", "shm", "mm", "posix", "sysv"};
  std::istringstream names(transports);
  for (std::string name; std::getline(names, name, ',');) {
    if (in_memory.count(name) != 0) {
      return true;
    }
  }
  return transports.front() == '^';
}

// What is to be said of bytes that go or come; `about` is for the callback.
ucp_request_param_t OfHostMemory(void* about) {
  ucp_request_param_t how{};
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  how.user_data = about;
  how.memory_type = UCS_MEMORY_TYPE_HOST;
  return how;
}

}  // namespace

Status UcxWorker::Failed(const std::string& what, ucs_status_t status) const {
  return UnavailableError("rank " + std::to_string(options_.rank) + " " + what + ": UCX says " +
                          ucx_.status_string(status) +
                          "; name transports that work in UCX_TLS, or choose the transport flows");
}

Status UcxWorker::Make(const Options& options, Owner* owner, std::unique_ptr<UcxWorker>* worker) {
  const UcxLibrary* ucx = nullptr;
  TREPAK_RETURN_IF_ERROR(UcxLibrary::Open(&ucx).Annotate("rank " + std::to_string(options.rank)));
  std::unique_ptr<UcxWorker> made(new UcxWorker(ucx, options, owner));
  TREPAK_RETURN_IF_ERROR(made->SetUp());
  *worker = std::move(made);
  return OkStatus();
}

Status UcxWorker::MakeContext() {
  const char* const asked = std::getenv("UCX_TLS");
  const bool is_asked = asked != nullptr && asked[0] != 0;
  const std::string transports = options_.in_memory_only ? kInMemory
                                 : is_asked              ? asked
                                                         : kUnlessAsked;
  has_shared_memory_ = MayUseSharedMemory(transports);
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) {
    return Failed("can't read UCX's settings", status);
  }
  status = ucx_.config_modify(config, "TLS", transports.c_str());
  if (status == UCS_OK) {
    static std::mutex* const one_at_a_time = new std::mutex;  // hooks are the process's
    std::lock_guard<std::mutex> lock(*one_at_a_time);
    std::optional<UcxLibrary::WithoutHooks> without;
    if (options_.in_memory_only || !UcxLibrary::HasRdma()) {
      without.emplace();
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  }
  ucx_.config_release(config);
  return status == UCS_OK ? OkStatus() : Failed("can't set up UCX", status);
}

Status UcxWorker::SetUp() {
  TREPAK_RETURN_IF_ERROR(MakeContext());
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // made here, used in a thread of its own
  ucs_status_t status = ucx_.worker_create(context_, &params, &worker_);
  if (status != UCS_OK) {
    return Failed("can't set up UCX", status);
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessages;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxWorker::OnMessage;
  handler.arg = this;
  status = ucx_.worker_set_am_recv_handler(worker_, &handler);
  if (status == UCS_OK) {
    status = ucx_.worker_get_efd(worker_, &descriptor_);
  }
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (status == UCS_OK) {
    status = ucx_.worker_get_address(worker_, &address, &bytes);
  }
  if (status != UCS_OK) {
    return Failed("can't set up UCX", status);
  }
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucx_.worker_release_address(worker_, address);
  return OkStatus();
}

UcxWorker::~UcxWorker() {
  KeepWhatPeersMayUse();
  if (worker_ != nullptr) {
    ucx_.worker_destroy(worker_);  // with all connections
  }
  if (context_ != nullptr) {
    ucx_.cleanup(context_);
  }
}

// A peer that stood still reads a payload where it lies, or writes one, when it goes on, and UCX
// can't tell it not to. It would take whatever lies there by then for a good message, or write into
// it. So what is under way when this rank gives up is leaked, on purpose; that is little, and rare.
void UcxWorker::KeepWhatPeersMayUse() {
  static std::mutex* const one_at_a_time = new std::mutex;
  static auto* const kept = new std::vector<Payload>;
  std::lock_guard<std::mutex> lock(*one_at_a_time);
  for (const Leaving& leaving : leaving_) {
    kept->push_back(leaving.message.payload);
  }
  for (const Coming& coming : coming_) {
    kept->push_back(coming.message.payload);
  }
}

Status UcxWorker::Connect(uint32_t peer, std::string_view address, bool is_on_this_host) {
  const auto [added, is_new] = connections_.try_emplace(peer);
  if (!is_new) {
    return OkStatus();
  }
  Connection& connection = added->second;
  connection.worker = this;
  connection.peer = peer;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // In shared memory UCX notices no end of a peer, and refuses to be asked for it.
  params.err_mode = is_on_this_host && has_shared_memory_ ? UCP_ERR_HANDLING_MODE_NONE
                                                          : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxWorker::OnError;
  params.err_handler.arg = &connection;
  const ucs_status_t status = ucx_.ep_create(worker_, &params, &connection.endpoint);
  if (status != UCS_OK) {
    connections_.erase(added);
    return Failed("can't reach rank " + std::to_string(peer), status);
  }
  return OkStatus();
}

void UcxWorker::Send(uint32_t peer, uint64_t number, Message message, uint64_t label) {
  leaving_.push_front({this, {}, label, std::move(message), {}});
  Leaving& leaving = leaving_.front();
  leaving.self = leaving_.begin();
  const Payload& payload = leaving.message.payload;
  leaving.envelope = {number, Encode(leaving.message.header, payload.size())};
  const auto found = connections_.find(peer);
  if (found == connections_.end() || found->second.is_broken) {
    OnLeft(nullptr, UCS_ERR_NOT_CONNECTED, &leaving);
    return;
  }
  ucp_request_param_t how = OfHostMemory(&leaving);
  how.cb.send = &UcxWorker::OnLeft;
  void* const request =
      ucx_.am_send_nbx(found->second.endpoint, kMessages, &leaving.envelope,
                       sizeof(leaving.envelope), payload.data(), payload.size(), &how);
  if (!UCS_PTR_IS_PTR(request)) {  // it is over: UCX calls nobody
    OnLeft(nullptr, UCS_PTR_STATUS(request), &leaving);
  }
}

void UcxWorker::OnLeft(void* request, ucs_status_t, void* leaving) {
  // How it ended does not matter: a connection that breaks says so itself.
  auto* const left = static_cast<Leaving*>(leaving);
  UcxWorker* const worker = left->worker;
  const uint64_t label = left->label;
  worker->leaving_.erase(left->self);
  if (request != nullptr) {
    worker->ucx_.request_free(request);
  }
  worker->owner_->OnSent(label);
}

void UcxWorker::OnError(void* connection, ucp_ep_h, ucs_status_t status) {
  auto* const broken = static_cast<Connection*>(connection);
  if (!broken->is_broken) {
    broken->is_broken = true;
    UcxWorker* const worker = broken->worker;
    worker->owner_->OnBroken(
        broken->peer,
        UnavailableError("the connection to rank " + std::to_string(broken->peer) +
                         " over UCX was lost: its process has ended, or the network was cut; UCX "
                         "says " +
                         worker->ucx_.status_string(status)));
  }
}

void UcxWorker::GiveUp(uint32_t peer) {
  const auto found = connections_.find(peer);
  if (found != connections_.end()) {
    found->second.is_broken = true;
  }
}

ucs_status_t UcxWorker::OnMessage(void* self, const void* header, size_t header_bytes, void* data,
                                  size_t bytes, const ucp_am_recv_param_t* how) {
  return static_cast<UcxWorker*>(self)->Receive(header, header_bytes, data, bytes, *how);
}

ucs_status_t UcxWorker::Receive(const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t& how) {
  Envelope envelope{};
  if (header_bytes != sizeof(envelope)) {
    owner_->OnRefusal(InvalidArgumentError("a message over UCX has no header of trepak's"));
    return UCS_OK;
  }
  std::memcpy(&envelope, header, sizeof(envelope));
  Header got;
  const Status status = Decode(
      {reinterpret_cast<const char*>(envelope.header.data()), envelope.header.size()}, bytes, &got);
  if (!status.ok() || !owner_->Expects(got)) {
    owner_->OnRefusal(status.ok() ? InvalidArgumentError("a message over UCX has a wrong token")
                                  : status);
    return UCS_OK;
  }
  if ((how.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return Fetch(envelope.number, got, data, bytes);
  }
  owner_->OnArrival(envelope.number, {got, Payload::Copy(data, bytes)});
  return UCS_OK;
}

ucs_status_t UcxWorker::Fetch(uint64_t number, const Header& header, void* data, size_t bytes) {
  coming_.push_front({this, {}, number, {header, Payload::Allocate(bytes)}});
  Coming& coming = coming_.front();
  coming.self = coming_.begin();
  ucp_request_param_t how = OfHostMemory(&coming);
  how.cb.recv_am = &UcxWorker::OnFetched;
  void* const request =
      ucx_.am_recv_data_nbx(worker_, data, coming.message.payload.mutable_data(), bytes, &how);
  if (!UCS_PTR_IS_PTR(request)) {
    OnFetched(nullptr, UCS_PTR_STATUS(request), bytes, &coming);
    return UCS_OK;
  }
  return UCS_INPROGRESS;
}

void UcxWorker::OnFetched(void* request, ucs_status_t status, size_t, void* coming) {
  auto* const fetched = static_cast<Coming*>(coming);
  UcxWorker* const worker = fetched->worker;
  const uint64_t number = fetched->number;
  Message message = std::move(fetched->message);
  worker->coming_.erase(fetched->self);
  if (request != nullptr) {
    worker->ucx_.request_free(request);
  }
  if (status == UCS_OK) {
    worker->owner_->OnArrival(number, std::move(message));
  } else {
    // UCX may notice an end before the flow does, and names what it tried, e.g. an operation on
    // a memory that is no more.
    worker->owner_->OnLost(
        message.header, UnavailableError("its process has ended, or can't be reached; UCX says, of "
                                         "a message that was to be fetched, " +
                                         std::string(worker->ucx_.status_string(status))));
  }
}

bool UcxWorker::Progress() {
  int steps = 0;
  while (steps < kStepsPerTurn && ucx_.worker_progress(worker_) != 0) {
    ++steps;
  }
  return steps != 0;
}

bool UcxWorker::Arm() { return ucx_.worker_arm(worker_) != UCS_ERR_BUSY; }

bool UcxWorker::HasFlushed() {
  bool is_over = true;
  for (auto& [peer, connection] : connections_) {
    if (connection.is_broken) {
      continue;
    }
    const auto [flush, is_new] = flushing_.try_emplace(peer, nullptr);
    if (is_new) {
      ucp_request_param_t how{};
      void* const request = ucx_.ep_flush_nbx(connection.endpoint, &how);
      flush->second = UCS_PTR_IS_PTR(request) ? request : nullptr;
    }
    if (flush->second != nullptr && ucx_.request_check_status(flush->second) != UCS_INPROGRESS) {
      ucx_.request_free(std::exchange(flush->second, nullptr));
    }
    is_over = is_over && flush->second == nullptr;
  }
  return is_over;
}

}  // namespace trepak
