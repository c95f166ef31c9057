#include "ops/runtime/net/zmq_crowd.h"

#include <algorithm>

namespace trepak {
namespace {

constexpr uint32_t kFirstRetry = 100;  // milliseconds
constexpr uint32_t kLastRetry = 500;
constexpr int kDoublings = 3;

}  // namespace

void ZmqCrowd::Remove(uint64_t connection) {
  const auto found = std::find(standing_.begin(), standing_.end(), connection);
  if (found != standing_.end()) {
    *found = standing_.back();
    standing_.pop_back();
  }
}

std::optional<uint64_t> ZmqCrowd::TakeOneTooMany() {
  if (standing_.size() <= most_) {
    return std::nullopt;
  }
  std::swap(standing_[draw_(static_cast<uint32_t>(standing_.size()))], standing_.back());
  const uint64_t connection = standing_.back();
  standing_.pop_back();
  return connection;
}

std::chrono::milliseconds RetryAfter(int tries, const Draw& draw) {
  const uint32_t longest =
      std::min(kFirstRetry << std::clamp(tries - 1, 0, kDoublings), kLastRetry);
  return std::chrono::milliseconds(longest / 2 + draw(longest / 2 + 1));
}

}  // namespace trepak
