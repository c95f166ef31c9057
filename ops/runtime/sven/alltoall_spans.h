// Alltoalls in a timeline: from when this rank sent its splits to when it had all others'.

#ifndef TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_SPANS_H_
#define TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_SPANS_H_

#include <map>
#include <string>

#include "ops/runtime/observe/timeline.h"
#include "ops/runtime/sven/alltoall_inbox.h"

namespace trepak {

// Exchanges that overlap have rows of their own. Does not own the timeline, which must outlive it.
// Thread safety: none.
class AlltoallSpans {
 public:
  explicit AlltoallSpans(Timeline* timeline) : timeline_(timeline) {}

  // This rank has sent its splits.
  void Begin(const AlltoallInbox::Id& id);

  // That exchange, of this name, is over.
  void End(const AlltoallInbox::Id& id, const std::string& name, const AlltoallExchange& exchange);

 private:
  Timeline* const timeline_;
  std::map<AlltoallInbox::Id, int> rows_;  // of exchanges that have begun
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_ALLTOALL_SPANS_H_
