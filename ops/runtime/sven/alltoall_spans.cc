#include "ops/runtime/sven/alltoall_spans.h"

#include <set>

namespace trepak {

void AlltoallSpans::Begin(const AlltoallInbox::Id& id) {
  if (!timeline_->on()) {
    return;
  }
  std::set<int> taken;
  for (const auto& [other, row] : rows_) {
    taken.insert(row);
  }
  int first_free = 0;
  while (taken.count(first_free) > 0) {
    ++first_free;
  }
  rows_[id] = first_free;
}

void AlltoallSpans::End(const AlltoallInbox::Id& id, const std::string& name,
                        const AlltoallExchange& exchange) {
  const auto found = rows_.find(id);
  if (found == rows_.end()) {
    return;
  }
  timeline_->Span(Timeline::Track::kAlltoalls, name, exchange.scattered, exchange.complete,
                  {{"number", static_cast<int64_t>(id.second)},
                   {"last rank", static_cast<int64_t>(exchange.last)}},
                  found->second);
  rows_.erase(found);
}

}  // namespace trepak
