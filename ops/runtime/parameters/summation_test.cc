#include "ops/runtime/parameters/summation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace trepak {
namespace {

template <typename Element>
void Check(ElementType type) {
  for (size_t offset : {0, 1, 3}) {  // bytes: what comes from the network is not aligned
    for (size_t count : {0, 1, 7, 64, 1001}) {
      std::vector<Element> a(count);
      std::vector<Element> b(count);
      for (size_t i = 0; i < count; ++i) {
        a[i] = static_cast<Element>(i);
        b[i] = static_cast<Element>(2 * i + 1);
      }
      const size_t bytes = count * sizeof(Element);
      std::vector<char> from(bytes + offset + 1);
      std::vector<char> to(bytes + offset + 1);
      if (bytes > 0) {
        std::memcpy(from.data() + offset, a.data(), bytes);
        std::memcpy(to.data() + offset, b.data(), bytes);
      }
      Accumulate(type, bytes, 1.0, from.data() + offset, to.data() + offset);
      Accumulate(type, bytes, 0.5, from.data() + offset, to.data() + offset);
      Scale(type, bytes, 2.0, to.data() + offset, to.data() + offset);
      if (bytes > 0) std::memcpy(b.data(), to.data() + offset, bytes);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(b[i], static_cast<Element>(7 * i + 2)) << i;
      }
      EXPECT_EQ(to[bytes + offset], 0);
    }
  }
}

TEST(SummationTest, Float32) { Check<float>(ElementType::kFloat32); }
TEST(SummationTest, Float64) { Check<double>(ElementType::kFloat64); }

}  // namespace
}  // namespace trepak
