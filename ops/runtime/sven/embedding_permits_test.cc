#include "ops/runtime/sven/embedding_permits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trepak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EmbeddingPermitsTest, ALookUpSeesAllButThePermittedUpdates) {
  EmbeddingPermits permits;
  for (int batch = 0; batch < 3; ++batch) {
    ASSERT_TRUE(permits.Take(3).ok());
  }
  const Status early = permits.Take(3);
  EXPECT_EQ(early.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(early.message()),
              HasSubstr("the look-up of batch 3 would see the updates of 0"));
  ASSERT_TRUE(permits.GiveBack().ok());
  ASSERT_TRUE(permits.Take(3).ok());
  EXPECT_THAT(permits.log(), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(permits.most_stale(), 2u);
}

TEST(EmbeddingPermitsTest, OnePermitIsExactness) {
  EmbeddingPermits permits;
  for (int batch = 0; batch < 4; ++batch) {
    ASSERT_TRUE(permits.Take(1).ok());
    EXPECT_FALSE(permits.Take(1).ok());
    ASSERT_TRUE(permits.GiveBack().ok());
  }
  EXPECT_EQ(permits.most_stale(), 0u);
  EXPECT_THAT(permits.log(), ElementsAre(0, 1, 2, 3));
}

TEST(EmbeddingPermitsTest, NoUpdateComesWithoutALookUp) {
  EmbeddingPermits permits;
  EXPECT_FALSE(permits.GiveBack().ok());
  ASSERT_TRUE(permits.Take(1).ok());
  permits.Reset();
  EXPECT_FALSE(permits.GiveBack().ok());
  EXPECT_EQ(permits.taken(), 0u);
}

}  // namespace
}  // namespace trepak
