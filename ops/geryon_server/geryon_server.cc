// The server protocol grpc+geryon: TensorFlow's own server, with Geryon's rendezvous.

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls.h"
#include "ops/geryon_server/geryon_rendezvous.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_server_lib.h"
#include "tensorflow/core/distributed_runtime/server_lib.h"

namespace trepak {
namespace {

constexpr char kProtocol[] = "grpc+geryon";

// The IPv4 address of a host name; the name itself if it has none.
std::string AddressOf(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) {
    return name;
  }
  char text[NI_MAXHOST] = "";
  getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  return text;
}

// Where this task listens for flows; empty if its name means something else on other machines, as
// where /etc/hosts gives a machine's own name a loopback address.
std::string ListenAt(const std::string& name, const tensorflow::ClusterDef& cluster) {
  const std::string address = AddressOf(name);
  if (address.rfind("127.", 0) != 0 && address != "0.0.0.0") {
    return address;
  }
  for (const auto& job : cluster.job()) {
    for (const auto& [number, target] : job.tasks()) {
      if (target.substr(0, target.rfind(':')) != name) {
        return "";
      }
    }
  }
  return address;
}

class GeryonServer : public tensorflow::GrpcServer {
 public:
  explicit GeryonServer(const tensorflow::ServerDef& definition)
      : GrpcServer(definition, tensorflow::Env::Default()) {}

  absl::Status Prepare(tensorflow::DeviceMgr* devices) {
    std::string host;
    int port = 0;
    TF_RETURN_IF_ERROR(GetHostAndPort(server_def(), &host, &port));
    tensorflow::GrpcServerOptions options;
    options.local_device_mgr = devices;
    const std::string address = ListenAt(host, server_def().cluster());
    options.rendezvous_mgr_func = [address](const tensorflow::WorkerEnv* env) {
      return new GeryonRendezvousMgr(env, address);
    };
    return Init(options);
  }
};

class GeryonServerFactory : public tensorflow::ServerFactory {
 public:
  bool AcceptsOptions(const tensorflow::ServerDef& definition) override {
    return definition.protocol() == kProtocol;
  }

  absl::Status NewServer(const tensorflow::ServerDef& definition, const Options& options,
                         std::unique_ptr<tensorflow::ServerInterface>* server) override {
    auto made = std::make_unique<GeryonServer>(definition);
    const absl::Status status = made->Prepare(options.local_device_mgr);
    if (!status.ok()) {
      made.release();  // TensorFlow's servers can't be destroyed
      return status;
    }
    *server = std::move(made);
    return absl::OkStatus();
  }
};

absl::Status RegisterProtocol(const Arguments&, Json*) {
  static std::once_flag once;
  std::call_once(once, [] {
    tensorflow::ServerFactory::Register("TREPAK_GERYON_SERVER", new GeryonServerFactory);
  });
  return absl::OkStatus();
}

// Says how many bytes of tensors left this process by the protocol, by priority.
absl::Status GetBytes(const Arguments&, Json* bytes) {
  *bytes = TensorExchange::BytesByPriority();
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls(
    {{"register_server_protocol", RegisterProtocol}, {"server_protocol_bytes", GetBytes}});

}  // namespace
}  // namespace trepak
