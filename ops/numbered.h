// Objects of the process that Python knows by numbers.

#ifndef TREPAK_OPS_NUMBERED_H_
#define TREPAK_OPS_NUMBERED_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace trepak {

// Owns the objects that have been added; who uses one keeps it until that is done. Thread safety:
// every method may be called from any thread.
template <typename Object>
class Numbered {
 public:
  // Returns its number, from 1 on, which no other object gets.
  int64_t Add(std::shared_ptr<Object> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
  }

  // Null if there is none.
  std::shared_ptr<Object> Find(int64_t number) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(number);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Returns it, for the caller to let go of; null if there is none.
  std::shared_ptr<Object> Take(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end()) {
      return nullptr;
    }
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Those of this process.
  static Numbered& Global() {
    static auto* const objects = new Numbered;
    return *objects;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Object>> objects_;  // Guarded by mutex_.
  int64_t last_ = 0;                                    // Guarded by mutex_.
};

}  // namespace trepak

#endif  // TREPAK_OPS_NUMBERED_H_
