#include "ops/runtime/net/zmq_proof.h"

#include <gtest/gtest.h>

namespace trepak {
namespace {

constexpr char kHere[] = "tcp://127.0.0.1:4000";

std::vector<std::string_view> Shown(const Ticket& ticket) { return {ticket.number, ticket.proof}; }

TEST(ProofCheckTest, TicketOpensOneConnection) {
  const Secret secret = MakeSecret();
  ProofCheck check(secret, kHere, false);
  const Ticket ticket = MakeTicket(secret, kHere);
  EXPECT_TRUE(check.Holds("PLAIN", Shown(ticket)));
  EXPECT_FALSE(check.Holds("PLAIN", Shown(ticket))) << "somebody had read it on its way";
  EXPECT_TRUE(check.Holds("PLAIN", Shown(MakeTicket(secret, kHere))));
}

TEST(ProofCheckTest, TicketIsForOneAddressAndOneJob) {
  const Secret secret = MakeSecret();
  ProofCheck check(secret, kHere, false);
  EXPECT_FALSE(check.Holds("PLAIN", Shown(MakeTicket(secret, "tcp://127.0.0.1:4001"))));
  EXPECT_FALSE(check.Holds("PLAIN", Shown(MakeTicket(MakeSecret(), kHere))));
}

TEST(ProofCheckTest, NothingElseIsATicket) {
  const Secret secret = MakeSecret();
  ProofCheck check(secret, kHere, false);
  const Ticket ticket = MakeTicket(secret, kHere);
  Ticket other = ticket;
  other.proof.back() = other.proof.back() == '0' ? '1' : '0';
  EXPECT_FALSE(check.Holds("PLAIN", Shown(other)));
  EXPECT_FALSE(check.Holds("PLAIN", {ticket.number, ""}));
  EXPECT_FALSE(check.Holds("PLAIN", {"", ""}));
  EXPECT_FALSE(check.Holds("PLAIN", {ticket.number}));
  EXPECT_FALSE(check.Holds("NULL", {}));
  EXPECT_FALSE(check.Holds("CURVE", {ticket.proof}));
  EXPECT_FALSE(check.Holds("CURVE", Shown(ticket)));
  EXPECT_TRUE(check.Holds("PLAIN", Shown(ticket))) << "a wrong one doesn't use it up";
}

TEST(ProofCheckTest, TicketTellsNothingOfTheSecret) {
  const Secret secret = MakeSecret();
  const Ticket ticket = MakeTicket(secret, kHere);
  const std::string bytes(secret.begin(), secret.end());
  EXPECT_EQ((ticket.number + ticket.proof).find(bytes), std::string::npos);
  EXPECT_EQ(ticket.number.size(), 32u);
  EXPECT_EQ(ticket.proof.size(), 64u);
  EXPECT_NE(MakeTicket(secret, kHere).number, ticket.number);
}

TEST(ProofCheckTest, EncryptedConnectionsNeedAKey) {
  const Secret secret = MakeSecret();
  ProofCheck check(secret, kHere, true);
  EXPECT_FALSE(check.Holds("PLAIN", Shown(MakeTicket(secret, kHere))));
  EXPECT_FALSE(check.Holds("CURVE", {std::string(32, 'k')}));
  EXPECT_FALSE(check.Holds("CURVE", {""}));
}

}  // namespace
}  // namespace trepak
