// Devices that stores of embeddings are to be opened with.

#ifndef TREPAK_OPS_EMBEDDING_DEVICES_H_
#define TREPAK_OPS_EMBEDDING_DEVICES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/runtime/sven/embedding_device.h"

namespace trepak {

// Hands devices, which an op finds, to the call that opens a store. Thread safety: every method may
// be called from any thread.
class EmbeddingDevices {
 public:
  // Returns its number.
  int64_t Add(std::shared_ptr<EmbeddingDevice> device) {
    std::lock_guard<std::mutex> lock(mutex_);
    devices_.emplace(++last_, std::move(device));
    return last_;
  }

  // Returns it to its only user; null if there is none.
  std::shared_ptr<EmbeddingDevice> Take(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = devices_.find(number);
    if (found == devices_.end()) {
      return nullptr;
    }
    std::shared_ptr<EmbeddingDevice> device = std::move(found->second);
    devices_.erase(found);
    return device;
  }

  // Those of this process.
  static EmbeddingDevices& Global() {
    static auto* const devices = new EmbeddingDevices;
    return *devices;
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<EmbeddingDevice>> devices_;  // Guarded by mutex_.
  int64_t last_ = 0;                                             // Guarded by mutex_.
};

}  // namespace trepak

#endif  // TREPAK_OPS_EMBEDDING_DEVICES_H_
