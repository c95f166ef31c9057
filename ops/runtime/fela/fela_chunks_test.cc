#include "ops/runtime/fela/fela_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace trepak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr FelaChunkName kName{3, 7, FelaChunkKind::kOutput};

FelaTensors Texts(const std::vector<std::string>& texts) {
  FelaTensors tensors;
  for (const std::string& text : texts) {
    tensors.push_back(Payload::Copy(text));
  }
  return tensors;
}

std::vector<std::string> TextsOf(const ParameterChunks& chunks, const FelaChunkName& name) {
  std::vector<std::string> texts;
  const FelaTensors* const tensors = chunks.Find(name);
  for (const Payload& tensor : tensors == nullptr ? FelaTensors() : *tensors) {
    texts.emplace_back(tensor.view());
  }
  return texts;
}

// Of iterations 3 and 4.
class FelaChunksTest : public testing::Test {
 protected:
  FelaChunksTest() { chunks_.DropBefore(3); }

  Status Receive(uint32_t sender, const FelaChunkPart& part, const std::string& text) {
    return chunks_.Receive(sender, part, Payload::Copy(text), &is_here_);
  }

  ParameterChunks chunks_{2};
  bool is_here_ = false;
};

TEST_F(FelaChunksTest, WhatWasMadeHereIsHereWithoutACopy) {
  const FelaTensors tensors = Texts({"a", "bc"});
  ASSERT_EQ(chunks_.Put(kName, tensors), OkStatus());
  EXPECT_EQ((*chunks_.Find(kName))[1].data(), tensors[1].data());
  EXPECT_EQ(chunks_.Find({3, 7, FelaChunkKind::kGradient}), nullptr);
  EXPECT_EQ(chunks_.Find({4, 7, FelaChunkKind::kOutput}), nullptr);
  EXPECT_EQ(chunks_.bytes(), 3u);
}

TEST_F(FelaChunksTest, AChunkIsHereWhenItsLastTensorIs) {
  ASSERT_EQ(Receive(1, {kName, 0, 2}, "a"), OkStatus());
  EXPECT_FALSE(is_here_);
  EXPECT_EQ(chunks_.Find(kName), nullptr);
  EXPECT_EQ(chunks_.bytes(), 1u);
  ASSERT_EQ(Receive(1, {kName, 1, 2}, "bc"), OkStatus());
  EXPECT_TRUE(is_here_);
  EXPECT_THAT(TextsOf(chunks_, kName), testing::ElementsAre("a", "bc"));
  EXPECT_EQ(chunks_.bytes(), 3u);
}

TEST_F(FelaChunksTest, AChunkIsMadeOnce) {
  ASSERT_EQ(chunks_.Put(kName, Texts({"a"})), OkStatus());
  EXPECT_THAT(std::string(chunks_.Put(kName, Texts({"a"})).message()),
              HasSubstr("makes the output of token 7 in iteration 3 twice"));
  EXPECT_FALSE(chunks_.Put({3, 8, FelaChunkKind::kOutput}, {}).ok());
  EXPECT_FALSE(chunks_.Put({3, 8, FelaChunkKind::kOutput}, FelaTensors(256)).ok());
  EXPECT_EQ(chunks_.Put({3, 8, FelaChunkKind::kOutput}, FelaTensors(255)), OkStatus());
}

// Of a token that two workers have completed.
TEST_F(FelaChunksTest, TheFirstOfTwoStays) {
  ASSERT_EQ(Receive(1, {kName, 0, 1}, "one"), OkStatus());
  ASSERT_EQ(Receive(2, {kName, 0, 1}, "two"), OkStatus());
  EXPECT_FALSE(is_here_);
  ASSERT_EQ(chunks_.Put(kName, Texts({"three"})), OkStatus());
  EXPECT_FALSE(chunks_.Put(kName, Texts({"three"})).ok());
  EXPECT_THAT(TextsOf(chunks_, kName), testing::ElementsAre("one"));
  EXPECT_EQ(chunks_.most_bytes(), 3u);
}

TEST_F(FelaChunksTest, SendersDoNotMix) {
  ASSERT_EQ(Receive(1, {kName, 0, 2}, "1a"), OkStatus());
  ASSERT_EQ(Receive(2, {kName, 0, 2}, "2a"), OkStatus());
  ASSERT_EQ(Receive(2, {kName, 1, 2}, "2b"), OkStatus());
  EXPECT_TRUE(is_here_);
  EXPECT_EQ(chunks_.bytes(), 4u) << "what is not needed any more is dropped";
  ASSERT_EQ(Receive(1, {kName, 1, 2}, "1b"), OkStatus());
  EXPECT_FALSE(is_here_);
  EXPECT_THAT(TextsOf(chunks_, kName), testing::ElementsAre("2a", "2b"));
  EXPECT_EQ(chunks_.bytes(), 4u);
}

TEST_F(FelaChunksTest, WhatIsNotTheNextTensorIsAnErrorThatNamesItsSender) {
  const auto error_of = [&](uint32_t sender, const FelaChunkPart& part) {
    return std::string(Receive(sender, part, "x").message());
  };
  EXPECT_THAT(error_of(1, {kName, 1, 2}),
              HasSubstr("rank 1 sent tensor 1 of 2 of the output of token 7 in iteration 3, where "
                        "tensor 0 of 2 was due"));
  EXPECT_EQ(error_of(2, {kName, 0, 3}), "");
  EXPECT_THAT(error_of(2, {kName, 1, 2}), HasSubstr("where tensor 1 of 3 was due"));
  EXPECT_THAT(error_of(2, {kName, 0, 3}), HasSubstr("where tensor 1 of 3 was due"));
  EXPECT_EQ(error_of(3, {kName, 0, 1}), "");
  EXPECT_THAT(error_of(3, {kName, 0, 1}),
              HasSubstr("rank 3 sent the output of token 7 in iteration 3 twice"));
}

TEST_F(FelaChunksTest, DroppedIterationsAreIgnored) {
  const FelaChunkName next{4, 1, FelaChunkKind::kSamples};
  auto owner = std::make_shared<std::string>("kept");
  const std::weak_ptr<std::string> watch = owner;
  void* const data = owner->data();
  ASSERT_EQ(chunks_.Put(kName, {Payload(data, 4, std::move(owner))}), OkStatus());
  ASSERT_EQ(chunks_.Put(next, Texts({"next"})), OkStatus());
  ASSERT_EQ(Receive(1, {{3, 9, FelaChunkKind::kLabels}, 0, 2}, "half"), OkStatus());
  EXPECT_EQ(chunks_.bytes(), 12u);
  chunks_.DropBefore(4);
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(chunks_.bytes(), 4u);
  EXPECT_EQ(chunks_.most_bytes(), 12u);
  EXPECT_EQ(chunks_.Put(kName, Texts({"late"})), OkStatus());
  EXPECT_EQ(Receive(1, {{3, 9, FelaChunkKind::kLabels}, 1, 2}, "rest"), OkStatus());
  EXPECT_FALSE(is_here_);
  EXPECT_EQ(chunks_.Find(kName), nullptr);
  EXPECT_EQ(chunks_.bytes(), 4u);
  chunks_.DropBefore(2);
  EXPECT_EQ(chunks_.first(), 4u) << "nothing comes back";
  EXPECT_THAT(std::string(chunks_.CheckKept(kName).message()),
              HasSubstr("the output of token 7 in iteration 3 can't be had any more"));
}

TEST_F(FelaChunksTest, IterationsTooFarAheadAreErrors) {
  const FelaChunkName ahead{5, 1, FelaChunkKind::kSamples};
  EXPECT_THAT(std::string(Receive(2, {ahead, 0, 1}, "x").message()),
              HasSubstr("rank 2: the samples of token 1 in iteration 5 can't be kept yet: this "
                        "rank keeps chunks of 2 iterations, from 3 on"));
  EXPECT_FALSE(chunks_.Put(ahead, Texts({"x"})).ok());
  EXPECT_FALSE(chunks_.CheckKept(ahead).ok());
  EXPECT_FALSE(chunks_.CheckKept({~uint64_t{0}, 1, FelaChunkKind::kSamples}).ok());
  chunks_.DropBefore(4);
  EXPECT_EQ(chunks_.Put(ahead, Texts({"x"})), OkStatus());
}

TEST(FelaChunkMessagesTest, APartIsReadAsItWasMade) {
  for (const FelaChunkPart& part :
       {FelaChunkPart{{uint64_t{1} << 40, ~uint32_t{0}, FelaChunkKind::kGradient}, 254, 255},
        FelaChunkPart{{0, 0, FelaChunkKind::kSamples}, 0, 1}}) {
    FelaChunkPart read;
    ASSERT_EQ(ReadPart(MessageOfPart(part, Payload()).header, &read), OkStatus());
    EXPECT_EQ(read.name, part.name);
    EXPECT_EQ(read.index, part.index);
    EXPECT_EQ(read.count, part.count);
  }
}

TEST(FelaChunkMessagesTest, WhatIsNoPartIsAnErrorThatNamesItsSender) {
  const auto error_of = [](uint32_t slice, uint8_t flags) {
    Header header;
    header.sender = 5;
    header.key = 9;
    header.slice = slice;
    header.flags = flags;
    FelaChunkPart part;
    return std::string(ReadPart(header, &part).message());
  };
  EXPECT_EQ(error_of(3 << 16 | 1, 2), "");
  EXPECT_THAT(error_of(4 << 16, 1),
              AllOf(HasSubstr("rank 5 sent"), HasSubstr("of kind 4 of token 9")));
  EXPECT_THAT(error_of(2, 2), HasSubstr("rank 5 sent tensor 2 of 2"));
  EXPECT_THAT(error_of(0, 0), HasSubstr("rank 5 sent tensor 0 of 0"));
}

// Whatever comes, the bytes that are counted are those that are held.
TEST(FelaChunksRandomTest, BytesAreThoseOfWhatIsHere) {
  std::mt19937 random(1);
  ParameterChunks chunks(3);
  std::vector<std::weak_ptr<void>> all;
  std::vector<size_t> sizes;
  const auto tensor = [&] {
    const size_t size = random() % 50;
    std::shared_ptr<void> owner = std::make_shared<std::vector<char>>(size);
    all.push_back(owner);
    sizes.push_back(size);
    return Payload(static_cast<std::vector<char>*>(owner.get())->data(), size, owner);
  };
  size_t received = 0;
  for (int i = 0; i < 3000; ++i) {
    const FelaChunkName name{chunks.first() + random() % 4 - (chunks.first() > 0 ? 1 : 0),
                             static_cast<uint32_t>(random() % 5),
                             static_cast<FelaChunkKind>(random() % kFelaChunkKinds)};
    bool is_here = false;
    if (random() % 40 == 0) {
      chunks.DropBefore(name.iteration);
    } else if (random() % 4 == 0) {
      [[maybe_unused]] const Status status = chunks.Put(name, {tensor(), tensor()});
    } else {
      const FelaChunkPart part{name, random() % 2, 2};
      [[maybe_unused]] const Status status =
          chunks.Receive(static_cast<uint32_t>(random() % 3), part, tensor(), &is_here);
    }
    received += is_here ? 1 : 0;
    size_t held = 0;
    for (size_t k = 0; k < all.size(); ++k) {
      held += all[k].expired() ? 0 : sizes[k];
    }
    ASSERT_EQ(chunks.bytes(), held) << i;
    ASSERT_GE(chunks.most_bytes(), held);
  }
  EXPECT_GT(received, 20u) << "else this tests little";
  chunks.DropBefore(chunks.first() + 5);
  EXPECT_EQ(chunks.bytes(), 0u);
}

}  // namespace
}  // namespace trepak
