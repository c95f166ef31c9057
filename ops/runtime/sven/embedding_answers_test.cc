#include "ops/runtime/sven/embedding_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/runtime/sven/embedding_fake_job.h"

namespace trepak {
namespace {

TEST(EmbeddingAnswersTest, BlocksThatAreTooLargeAreRefused) {
  const EmbeddingTable table{"large", 1 << 20, 4, {}};
  std::vector<EmbeddingShard> shards;
  AddGrid(1, 0, table, 1, 1, &shards);
  std::shared_ptr<EmbeddingStore> store;
  ASSERT_TRUE(EmbeddingStore::Make(MakePlan(1, {table}, shards), 0, &store).ok());
  EmbeddingAnswers owner(store);
  embeddings::Request request;
  for (const int64_t count : {1 << 18, (1 << 18) + 1}) {
    request.count = count;
    EmbeddingAnswers::Answers answers;
    ASSERT_EQ(owner.Take(MessageOf(embeddings::kRead, request), &answers), OkStatus());
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].message.header.kind == embeddings::kRefused, count > 1 << 18);
  }
}

TEST(EmbeddingAnswersTest, AMessageOfAnotherKindIsAnError) {
  EmbeddingAnswers answers(nullptr);
  EmbeddingAnswers::Answers found;
  Message empty;
  empty.header.kind = embeddings::kRead;
  empty.header.sender = 2;
  EXPECT_THAT(std::string(answers.Take(empty, &found).message()),
              testing::HasSubstr("rank 2 asked for embeddings in 0 bytes"));
}

}  // namespace
}  // namespace trepak
