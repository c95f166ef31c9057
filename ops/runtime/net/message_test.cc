#include "ops/runtime/net/message.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace trepak {
namespace {

std::string_view View(const HeaderBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr MessageKind kExample = KindOf("example", 5);

Header Example() {
  Header header;
  header.kind = kExample;
  header.type = ElementType::kFloat32;
  header.flags = 1;
  header.priority = 3;
  header.order = 0x0708;
  header.sender = 0x01020304;
  header.key = 5;
  header.slice = 6;
  header.round = uint64_t{1} << 40;
  header.sequence = 8;
  header.token = ~uint64_t{0};
  return header;
}

TEST(MessageTest, SurvivesTheWire) {
  const Header sent = Example();
  Header got;
  ASSERT_TRUE(Decode(View(Encode(sent, 12)), 12, &got).ok());
  EXPECT_EQ(View(Encode(got, 12)), View(Encode(sent, 12)));
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.order, sent.order);
  EXPECT_EQ(got.sender, sent.sender);
  EXPECT_EQ(got.round, sent.round);
  EXPECT_EQ(got.token, sent.token);
}

TEST(MessageTest, IsLittleEndian) {
  const HeaderBytes bytes = Encode(Example(), 0);
  EXPECT_EQ(View(bytes).substr(0, 4), "TRPK");
  EXPECT_EQ(bytes[12], 4);
  EXPECT_EQ(bytes[15], 1);
}

TEST(MessageTest, WrongSizesAreErrors) {
  Header got;
  const HeaderBytes bytes = Encode(Example(), 12);
  EXPECT_FALSE(Decode(View(bytes), 8, &got).ok());
  EXPECT_FALSE(Decode(View(bytes).substr(1), 12, &got).ok());
  EXPECT_FALSE(Decode("", 0, &got).ok());
  EXPECT_FALSE(Decode(View(Encode(Example(), 13)), 13, &got).ok()) << "half an element";
}

TEST(MessageTest, EveryWrongByteOfTheFixedPartIsAnError) {
  Header got;
  for (size_t at : {0, 1, 2, 3, 4, 5, 48, 55}) {
    HeaderBytes bytes = Encode(Example(), 12);
    bytes[at] ^= 0xff;
    EXPECT_FALSE(Decode(View(bytes), 12, &got).ok()) << at;
  }
}

TEST(MessageTest, SystemsNumberTheirOwnKinds) {
  EXPECT_EQ(kExample & 0xff, 5);
  EXPECT_NE(kExample, KindOf("example", 6));
  EXPECT_NE(kExample, KindOf("another", 5));
  EXPECT_EQ(NameOf(kExample), "kind 5 of system " + std::to_string(kExample >> 8));
}

TEST(MessageTest, CarriesElementsOfEveryTypeAndRawBytes) {
  const std::array<std::pair<ElementType, size_t>, 6> types = {{{ElementType::kNone, 0},
                                                                {ElementType::kFloat32, 4},
                                                                {ElementType::kFloat64, 8},
                                                                {ElementType::kBfloat16, 2},
                                                                {ElementType::kInt32, 4},
                                                                {ElementType::kInt64, 8}}};
  for (const auto& [type, bytes] : types) {
    EXPECT_EQ(SizeOf(type), bytes);
    Header sent = Example();
    sent.type = type;
    Header got;
    ASSERT_TRUE(Decode(View(Encode(sent, 8)), 8, &got).ok());
    EXPECT_EQ(got.type, type);
    EXPECT_EQ(Decode(View(Encode(sent, 9)), 9, &got).ok(), bytes == 0) << "half an element";
  }
}

TEST(MessageTest, ABodyIsReadAsItWasWritten) {
  struct Body {
    uint64_t number;
    double seconds;
  };
  const Message message = MessageOf(kExample, Body{7, 0.5});
  EXPECT_EQ(message.header.kind, kExample);
  Body body{};
  ASSERT_TRUE(ReadBody(message, &body).ok());
  EXPECT_EQ(body.number, 7U);
  EXPECT_EQ(body.seconds, 0.5);
  uint64_t other = 0;
  const Status status = ReadBody(message, &other);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("16 bytes in a message of kind 5"), std::string::npos);
}

TEST(MessageTest, GarbageIsReadSafely) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    HeaderBytes bytes = Encode(Example(), 12);
    for (int change = static_cast<int>(random() % 4); change >= 0; --change) {
      bytes[random() % bytes.size()] = static_cast<unsigned char>(random());
    }
    Header got;
    const size_t length = random() % (bytes.size() + 1);
    if (Decode(View(bytes).substr(0, length), 12, &got).ok()) {
      EXPECT_EQ(View(Encode(got, 12)), View(bytes));
    }
  }
}

}  // namespace
}  // namespace trepak
