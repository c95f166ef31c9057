// For tests: a device whose memory can be used by its methods alone.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FAKE_DEVICE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FAKE_DEVICE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "ops/runtime/sven/embedding_device.h"

namespace trepak {

// Keeps numbers negated, as a stand-in for what looks right only where it has been copied. Begins
// with garbage, as a device does. Thread safety: an EmbeddingDevice's.
class FakeDevice : public EmbeddingDevice {
 public:
  Status Take(size_t numbers) override {
    EXPECT_TRUE(numbers_.empty());
    numbers_.assign(numbers, std::numeric_limits<float>::signaling_NaN());
    return OkStatus();
  }

  Status Read(const Part& part, Span<int32_t> slots, float* rows) override {
    TREPAK_RETURN_IF_ERROR(Begin(part, slots));
    for (const int32_t slot : slots) {
      for (size_t i = 0; i < part.record; ++i) {
        *rows++ = -numbers_[At(part, slot) + i];
      }
    }
    return OkStatus();
  }

  Status Write(const Part& part, Span<int32_t> slots, const float* rows) override {
    TREPAK_RETURN_IF_ERROR(Begin(part, slots));
    EXPECT_EQ(std::set<int32_t>(slots.begin(), slots.end()).size(), slots.size);
    for (const int32_t slot : slots) {
      for (size_t i = 0; i < part.record; ++i) {
        numbers_[At(part, slot) + i] = -*rows++;
      }
    }
    return OkStatus();
  }

  // Fails from that many copies on.
  void FailAfter(int64_t copies) { left_ = copies; }

 private:
  Status Begin(const Part& part, Span<int32_t> slots) {
    EXPECT_EQ(part.begin % kAlignment, 0U);
    EXPECT_LE(part.begin + part.slots * part.record, numbers_.size());
    for (const int32_t slot : slots) {
      EXPECT_LT(static_cast<size_t>(slot), part.slots);
    }
    return left_-- > 0 ? OkStatus() : InternalError("the device is lost");
  }

  static size_t At(const Part& part, int32_t slot) {
    return part.begin + static_cast<size_t>(slot) * part.record;
  }

  std::vector<float> numbers_;
  std::atomic<int64_t> left_{std::numeric_limits<int64_t>::max()};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FAKE_DEVICE_H_
