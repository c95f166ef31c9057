#include "ops/runtime/sven/alltoall_outbox.h"

#include <set>
#include <string>
#include <utility>

#include "ops/runtime/sven/alltoall_messages.h"

namespace trepak {

std::vector<Message> AlltoallOutbox::Admit() {
  std::vector<Message> admitted;
  std::deque<Message> waiting;
  std::set<uint32_t> held_up;  // exchanges of which an earlier split waits
  for (Message& split : waiting_) {
    Exchanges& exchanges = exchanges_[split.header.key];
    const size_t bytes = alltoall::BytesOf(split.payload);
    const bool is_awaited =
        exchanges.bytes.empty() || exchanges.taken + exchanges.bytes.size() < exchanges.wanted;
    const bool fits = is_awaited || (bytes <= credit_ && held_ <= credit_ - bytes);
    if (!fits || held_up.count(split.header.key) != 0) {
      held_up.insert(split.header.key);
      waiting.push_back(std::move(split));
      continue;
    }
    held_ += bytes;
    exchanges.bytes.push_back(bytes);
    admitted.push_back(std::move(split));
  }
  waiting_ = std::move(waiting);
  return admitted;
}

Status AlltoallOutbox::Take(uint32_t key, uint64_t iterations) {
  Exchanges& exchanges = exchanges_[key];
  if (iterations < exchanges.taken || iterations - exchanges.taken > exchanges.bytes.size()) {
    return InvalidArgumentError("it says that it has taken " + std::to_string(iterations) +
                                " splits of exchanges " + std::to_string(key) + ", it got " +
                                std::to_string(exchanges.taken + exchanges.bytes.size()));
  }
  for (; exchanges.taken < iterations; ++exchanges.taken) {
    held_ -= exchanges.bytes.front();
    exchanges.bytes.pop_front();
  }
  return OkStatus();
}

}  // namespace trepak
