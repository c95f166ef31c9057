#include "ops/runtime/net/handshake.h"

#include <gtest/gtest.h>

#include <functional>

namespace trepak {
namespace {

TEST(HandshakeTest, SecretsDiffer) { EXPECT_NE(MakeSecret(), MakeSecret()); }

TEST(HandshakeTest, EndsThatShareTheSecretAgree) {
  const Secret secret = MakeSecret();
  SenderHandshake sender(secret, 7, 1);
  ReceiverHandshake receiver(secret);
  Message challenge;
  Message proof;
  Message welcome;
  ASSERT_TRUE(receiver.OnMessage(sender.Hello(), &challenge).ok());
  EXPECT_FALSE(receiver.open());
  ASSERT_TRUE(sender.OnChallenge(challenge, &proof).ok());
  ASSERT_TRUE(receiver.OnMessage(proof, &welcome).ok());
  ASSERT_TRUE(sender.OnWelcome(welcome).ok());
  EXPECT_TRUE(receiver.open() && sender.open());
  EXPECT_EQ(receiver.token(), sender.token());
  EXPECT_EQ(receiver.rank(), 7u);
  EXPECT_EQ(receiver.priority(), 1);
}

TEST(HandshakeTest, ReceiverWithoutTheSecretIsRefused) {
  SenderHandshake sender(MakeSecret(), 0, 0);
  ReceiverHandshake receiver(MakeSecret());
  Message challenge;
  Message proof;
  ASSERT_TRUE(receiver.OnMessage(sender.Hello(), &challenge).ok());
  EXPECT_FALSE(sender.OnChallenge(challenge, &proof).ok());
  EXPECT_FALSE(sender.open());
}

// What a receiver says of a proof that was changed on its way.
Status ReceiveChanged(const std::function<void(Message*)>& change) {
  const Secret secret = MakeSecret();
  SenderHandshake sender(secret, 7, 1);
  ReceiverHandshake receiver(secret);
  Message challenge;
  Message proof;
  Message welcome;
  EXPECT_TRUE(receiver.OnMessage(sender.Hello(), &challenge).ok());
  EXPECT_TRUE(sender.OnChallenge(challenge, &proof).ok());
  change(&proof);
  const Status status = receiver.OnMessage(proof, &welcome);
  EXPECT_EQ(receiver.open(), status.ok());
  return status;
}

TEST(HandshakeTest, ChangedProofsAreRefused) {
  EXPECT_TRUE(ReceiveChanged([](Message*) {}).ok());
  for (size_t at : {0, 15, 31}) {
    EXPECT_FALSE(ReceiveChanged([at](Message* proof) {
                   static_cast<char*>(proof->payload.mutable_data())[at] ^= 1;
                 }).ok());
  }
  EXPECT_FALSE(
      ReceiveChanged([](Message* proof) { proof->payload = proof->payload.Part(0, 31); }).ok());
}

TEST(HandshakeTest, ProofsOfOtherFlowsAreRefused) {
  const Secret secret = MakeSecret();
  ReceiverHandshake first(secret);
  ReceiverHandshake second(secret);
  SenderHandshake sender(secret, 7, 1);
  Message challenge;
  Message other;
  Message proof;
  ASSERT_TRUE(first.OnMessage(sender.Hello(), &challenge).ok());
  ASSERT_TRUE(second.OnMessage(sender.Hello(), &other).ok());
  ASSERT_TRUE(sender.OnChallenge(challenge, &proof).ok());
  EXPECT_FALSE(second.OnMessage(proof, &other).ok()) << "replayed";
}

TEST(HandshakeTest, NothingComesOutOfTurn) {
  const Secret secret = MakeSecret();
  Message push;
  push.header.kind = KindOf("test", 1);
  Message reply;
  ReceiverHandshake receiver(secret);
  EXPECT_FALSE(receiver.OnMessage(push, &reply).ok());
  SenderHandshake sender(secret, 0, 0);
  Message welcome;
  welcome.header.kind = handshake::kWelcome;
  EXPECT_FALSE(sender.OnWelcome(welcome).ok()) << "before the challenge";
  EXPECT_FALSE(sender.OnChallenge(push, &reply).ok());
}

}  // namespace
}  // namespace trepak
