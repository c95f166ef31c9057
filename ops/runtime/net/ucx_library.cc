#include "ops/runtime/net/ucx_library.h"

#include <dlfcn.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace trepak {
namespace {

constexpr const char* kRemedy =
    ": install it (Debian's package libucx0), or choose the transport flows";

// UCX handles signals of crashes when it is loaded; a training process has its own ways. What was
// there before is put back.
class SameSignals {
 public:
  SameSignals() {
    for (int signal = 1; signal < kSignals; ++signal) {
      known_[static_cast<size_t>(signal)] =
          sigaction(signal, nullptr, &before_[static_cast<size_t>(signal)]) == 0;
    }
  }
  SameSignals(const SameSignals&) = delete;
  SameSignals& operator=(const SameSignals&) = delete;
  ~SameSignals() {
    for (int signal = 1; signal < kSignals; ++signal) {
      const auto at = static_cast<size_t>(signal);
      struct sigaction now {};
      if (known_[at] && sigaction(signal, nullptr, &now) == 0 &&
          now.sa_sigaction != before_[at].sa_sigaction) {
        sigaction(signal, &before_[at], nullptr);
      }
    }
  }

 private:
  static constexpr int kSignals = 32;  // those of real time are nobody's here
  std::array<struct sigaction, kSignals> before_{};
  std::array<bool, kSignals> known_{};
};

}  // namespace

Status UcxLibrary::Load(const char* file) {
  void* opened = nullptr;
  {
    const SameSignals same;
    const WithoutHooks without;
    // The version that Debian's Open MPI has loaded, if it has.
    opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }
  if (opened == nullptr) {
    return NotFoundError("UCX can't be opened: " + std::string(dlerror()) + kRemedy);
  }
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* const found = dlsym(opened, name);
    if (found == nullptr) {
      missing = name;
    }
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
  };
  find("ucp_init_version", &init_version);
  find("ucp_cleanup", &cleanup);
  find("ucp_config_read", &config_read);
  find("ucp_config_modify", &config_modify);
  find("ucp_config_release", &config_release);
  find("ucp_worker_create", &worker_create);
  find("ucp_worker_destroy", &worker_destroy);
  find("ucp_worker_get_address", &worker_get_address);
  find("ucp_worker_release_address", &worker_release_address);
  find("ucp_worker_get_efd", &worker_get_efd);
  find("ucp_worker_arm", &worker_arm);
  find("ucp_worker_progress", &worker_progress);
  find("ucp_ep_flush_nbx", &ep_flush_nbx);
  find("ucp_worker_set_am_recv_handler", &worker_set_am_recv_handler);
  find("ucp_ep_create", &ep_create);
  find("ucp_am_send_nbx", &am_send_nbx);
  find("ucp_am_recv_data_nbx", &am_recv_data_nbx);
  find("ucp_request_check_status", &request_check_status);
  find("ucp_request_free", &request_free);
  find("ucs_status_string", &status_string);
  if (!missing.empty()) {
    return NotFoundError("this UCX is too old, it has no " + missing + kRemedy);
  }
  return OkStatus();
}

Status UcxLibrary::Open(const UcxLibrary** library) {
  struct Opened {
    UcxLibrary library;
    Status status = library.Load("libucp.so.0");
  };
  static const auto* const opened = new Opened;  // threads may end after all else
  *library = &opened->library;
  return opened->status;
}

bool UcxLibrary::HasRdma() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return devices != std::filesystem::directory_iterator();
}

UcxLibrary::WithoutHooks::WithoutHooks() {
  // The part of UCX that patches; loading it does nothing yet. It lacks functions of other parts
  // until these are loaded.
  void* const opened = dlopen("libucm.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) {
    return;
  }
  settings_ = static_cast<ucm_global_config_t*>(dlsym(opened, "ucm_global_opts"));
  const auto begin =
      reinterpret_cast<decltype(&ucm_set_global_opts)>(dlsym(opened, "ucm_set_global_opts"));
  if (settings_ != nullptr && begin != nullptr) {
    before_ = std::exchange(settings_->enable_events, 0);
    // Whoever calls this first has it patch or not; the rest of UCX does so when it is loaded.
    begin(settings_);
  }
}

UcxLibrary::WithoutHooks::~WithoutHooks() {
  if (settings_ != nullptr) {
    settings_->enable_events = before_;
  }
}

}  // namespace trepak
