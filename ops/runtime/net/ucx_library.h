// UCX, opened at run time: nothing of trepak needs it to be installed.

#ifndef TREPAK_OPS_RUNTIME_NET_UCX_LIBRARY_H_
#define TREPAK_OPS_RUNTIME_NET_UCX_LIBRARY_H_

#include <ucm/api/ucm.h>
#include <ucp/api/ucp.h>

#include "ops/runtime/net/status.h"

namespace trepak {

// What is used of it. Once opened it stays, as it asks for itself.
//
// Thread safety: Open may be called from any thread; what it gives is constant.
class UcxLibrary {
 public:
  // Opens it where it is not open. Fails, saying what to install, where it is missing or too old.
  static Status Open(const UcxLibrary** library);

  // As Open, of a file of another name, and anew each time; for tests.
  Status Load(const char* file);

  // Whether this host has devices that memory is registered with.
  static bool HasRdma();

  // Keeps UCX from patching the process's mmap, munmap and the like, while it stands: only
  // registered memory needs that, of which transports in shared memory have none. An MPI that has
  // had them patched before keeps that. One stands at a time, see ucx_worker.cc.
  class WithoutHooks {
   public:
    WithoutHooks();
    WithoutHooks(const WithoutHooks&) = delete;
    WithoutHooks& operator=(const WithoutHooks&) = delete;
    ~WithoutHooks();

   private:
    ucm_global_config_t* settings_ = nullptr;  // UCX's own; null: it has none
    int before_ = 0;
  };

  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UCX_LIBRARY_H_
