// For tests of UCX: an owner that wants nothing of its worker.

#ifndef TREPAK_OPS_RUNTIME_NET_UCX_TESTING_H_
#define TREPAK_OPS_RUNTIME_NET_UCX_TESTING_H_

#include <cstdint>

#include "ops/runtime/net/ucx_worker.h"

namespace trepak {

// Thread safety: it has no state.
class UcxNobody : public UcxWorker::Owner {
  bool Expects(const Header&) override { return false; }
  void OnArrival(uint64_t, Message) override {}
  void OnRefusal(const Status&) override {}
  void OnLost(const Header&, const Status&) override {}
  void OnSent(uint64_t) override {}
  void OnBroken(uint32_t, const Status&) override {}
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UCX_TESTING_H_
