#include "ops/runtime/digest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace trepak {
namespace {

TEST(DigestTest, IsThePublishedFunction) {
  // The values of XXH3's own specification for the empty input and for one zero byte.
  EXPECT_EQ(Digest(nullptr, 0), 0x2D06800538D394C2u);
  const unsigned char zero = 0;
  EXPECT_EQ(Digest(&zero, 1), 0xC44BDFF4074EECDBu);
}

TEST(DigestTest, SeesEveryBit) {
  for (const size_t size : {1, 16, 17, 240, 241, 1000, 5000}) {
    std::vector<unsigned char> bytes(size, 7);
    std::set<uint64_t> seen{Digest(bytes.data(), size)};
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
      EXPECT_TRUE(seen.insert(Digest(bytes.data(), size)).second) << size << " bytes, bit " << bit;
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    }
  }
}

TEST(DigestTest, DoesNotDependOnWhereTheBytesAre) {
  std::vector<unsigned char> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(i * 31);
  }
  const uint64_t digest = Digest(bytes.data(), bytes.size());
  for (size_t offset = 1; offset < 64; ++offset) {
    std::vector<unsigned char> elsewhere(bytes.size() + offset);
    std::memcpy(elsewhere.data() + offset, bytes.data(), bytes.size());
    EXPECT_EQ(Digest(elsewhere.data() + offset, bytes.size()), digest);
  }
}

}  // namespace
}  // namespace trepak
