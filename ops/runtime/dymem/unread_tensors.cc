#include "ops/runtime/dymem/unread_tensors.h"

#include <iterator>
#include <utility>

namespace trepak {

int64_t UnreadTensors::Add(Leave leave) {
  std::lock_guard<std::mutex> lock(mutex_);
  tensors_[++last_number_] = std::move(leave);
  return last_number_;
}

int64_t UnreadTensors::AddKept(Leave leave) {
  std::lock_guard<std::mutex> lock(mutex_);
  tensors_[--last_kept_] = std::move(leave);
  return last_kept_;
}

void UnreadTensors::Remove(int64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  tensors_.erase(number);
}

bool UnreadTensors::EvictLast() {
  while (true) {
    Leave leave;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (tensors_.empty()) {
        return false;
      }
      const auto last = std::prev(tensors_.end());
      leave = std::move(last->second);
      tensors_.erase(last);
    }
    if (leave()) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++evicted_;
      return true;
    }
  }
}

int64_t UnreadTensors::evicted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return evicted_;
}

}  // namespace trepak
