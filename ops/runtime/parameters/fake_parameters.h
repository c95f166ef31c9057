// A job's parameters in one process, for tests.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_FAKE_PARAMETERS_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_FAKE_PARAMETERS_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "ops/runtime/parameters/global_parameters.h"

namespace trepak {

// What the parameter servers do in a real job.
// Of one number. Thread safety: every method may be called from any thread.
class SharedParameters : public GlobalParameters {
 public:
  explicit SharedParameters(uint32_t size) : size_(size) {}

  void Assign(Payload values, Callback callback) override {
    Do([this, &values] { value_ = *static_cast<const float*>(values.data()); },
       std::move(callback));
  }
  void Change(Payload change, uint32_t ranks, uint64_t samples, Callback callback) override {
    Do(
        [this, &change, ranks, samples] {
          const auto share = static_cast<float>(ranks) / static_cast<float>(size_);
          value_ += share * *static_cast<const float*>(change.data());
          samples_ += samples;
        },
        std::move(callback));
  }
  void Fetch(Callback callback) override {
    Do([] {}, std::move(callback));
  }

 private:
  void Do(const std::function<void()>& what, const Callback& callback) {
    Payload values = Payload::Allocate(sizeof(float));
    uint64_t samples = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      what();
      *static_cast<float*>(values.mutable_data()) = value_;
      samples = samples_;
    }
    callback(OkStatus(), values, samples);
  }

  const uint32_t size_;
  std::mutex mutex_;
  float value_ = 0;       // Guarded by mutex_.
  uint64_t samples_ = 0;  // Guarded by mutex_.
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_FAKE_PARAMETERS_H_
