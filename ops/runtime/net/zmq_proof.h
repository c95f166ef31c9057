// What ZeroMQ asks of a connection before it takes a message from it: that it knows the secret.
//
// Plain flows show a ticket, by ZMTP's mechanism PLAIN: a number drawn at random, and its
// HMAC-SHA-256 under the secret together with the address that the connection is made to. Whoever
// reads a ticket on its way, or is shown one in a receiver's place, has nothing: it opens one
// connection, at that address alone. (Both ends then prove themselves by handshake.h, so that the
// sender knows its receiver, too.)
//
// Encrypted flows use ZMTP's mechanism CURVE, with two key pairs that are made of the secret: one
// of all receivers, one of all senders.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_PROOF_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_PROOF_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/runtime/net/handshake.h"

namespace trepak {

// Has a listening socket ask for the proof, which ProofCheck checks. Comes before it is bound.
void AskForProof(void* listener, const Secret& secret, bool encrypt);

// Has a connecting socket give it, for one connection to `address`.
void GiveProof(void* socket, const Secret& secret, const std::string& address, bool encrypt);

// What a plain connection shows.
struct Ticket {
  std::string number;
  std::string proof;
};
Ticket MakeTicket(const Secret& secret, const std::string& address);

// Thread safety: none.
class ProofCheck {
 public:
  // `address`: of the listening socket, as those who connect call it.
  ProofCheck(const Secret& secret, std::string address, bool encrypt);

  // Whether a connection may come in: its mechanism's name, and what that says of it (RFC 27).
  bool Holds(std::string_view mechanism, const std::vector<std::string_view>& credentials);

 private:
  const Secret secret_;
  const std::string address_;
  const std::string sender_key_;  // CURVE's; empty: tickets are asked for
  std::set<std::string> used_;    // numbers of tickets that were good
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_PROOF_H_
