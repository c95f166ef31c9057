#include "ops/runtime/net/zmq_proof.h"

#include <sodium.h>
#include <zmq.h>

#include <array>
#include <utility>

#include "ops/runtime/net/zmq_socket.h"

namespace trepak {
namespace {

constexpr size_t kNumberBytes = 16;

// What the secret is used for; no proof of one kind is one of another.
constexpr char kTicket[] = "trepak ticket ";
constexpr char kReceiver[] = "trepak curve receiver";
constexpr char kSender[] = "trepak curve sender";

using Digest = std::array<unsigned char, crypto_auth_hmacsha256_BYTES>;

Digest Derive(const Secret& secret, const std::string& text) {
  Digest digest;
  crypto_auth_hmacsha256(digest.data(), reinterpret_cast<const unsigned char*>(text.data()),
                         text.size(), secret.data());
  return digest;
}

template <size_t kSize>
std::string Hexadecimal(const std::array<unsigned char, kSize>& bytes) {
  std::string text(2 * kSize + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();  // its terminating zero
  return text;
}

std::string ProofOf(const Secret& secret, const std::string& number, const std::string& address) {
  return Hexadecimal(Derive(secret, kTicket + number + " " + address));
}

struct KeyPair {
  std::array<unsigned char, crypto_box_PUBLICKEYBYTES> open;
  std::array<unsigned char, crypto_box_SECRETKEYBYTES> secret;
};

KeyPair DeriveKeys(const Secret& secret, const char* whose) {
  static_assert(std::tuple_size<Digest>::value == crypto_box_SEEDBYTES);
  const Digest seed = Derive(secret, whose);
  KeyPair keys;
  crypto_box_seed_keypair(keys.open.data(), keys.secret.data(), seed.data());
  return keys;
}

template <typename Bytes>
void Set(void* socket, int option, const Bytes& bytes) {
  zmq_setsockopt(socket, option, bytes.data(), bytes.size());
}

// In constant time: how long it takes tells nothing about what is right.
bool Same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Ticket MakeTicket(const Secret& secret, const std::string& address) {
  std::array<unsigned char, kNumberBytes> drawn;
  randombytes_buf(drawn.data(), drawn.size());
  const std::string number = Hexadecimal(drawn);
  return {number, ProofOf(secret, number, address)};
}

void AskForProof(void* listener, const Secret& secret, bool encrypt) {
  // Without a domain ZeroMQ would take peers of its protocols before 3.0, which prove nothing.
  constexpr std::string_view kDomain = "trepak";
  Set(listener, ZMQ_ZAP_DOMAIN, kDomain);
  SetInt(listener, encrypt ? ZMQ_CURVE_SERVER : ZMQ_PLAIN_SERVER, 1);
  if (encrypt) {
    Set(listener, ZMQ_CURVE_SECRETKEY, DeriveKeys(secret, kReceiver).secret);
  }
}

void GiveProof(void* socket, const Secret& secret, const std::string& address, bool encrypt) {
  if (encrypt) {
    const KeyPair mine = DeriveKeys(secret, kSender);
    Set(socket, ZMQ_CURVE_SERVERKEY, DeriveKeys(secret, kReceiver).open);
    Set(socket, ZMQ_CURVE_PUBLICKEY, mine.open);
    Set(socket, ZMQ_CURVE_SECRETKEY, mine.secret);
    return;
  }
  const Ticket ticket = MakeTicket(secret, address);
  Set(socket, ZMQ_PLAIN_USERNAME, ticket.number);
  Set(socket, ZMQ_PLAIN_PASSWORD, ticket.proof);
}

ProofCheck::ProofCheck(const Secret& secret, std::string address, bool encrypt)
    : secret_(secret), address_(std::move(address)), sender_key_([&] {
        const KeyPair keys = DeriveKeys(secret, kSender);
        return encrypt ? std::string(keys.open.begin(), keys.open.end()) : "";
      }()) {}

bool ProofCheck::Holds(std::string_view mechanism,
                       const std::vector<std::string_view>& credentials) {
  if (!sender_key_.empty()) {
    return mechanism == "CURVE" && credentials.size() == 1 && Same(credentials[0], sender_key_);
  }
  if (mechanism != "PLAIN" || credentials.size() != 2) {
    return false;
  }
  const std::string number(credentials[0]);
  return Same(credentials[1], ProofOf(secret_, number, address_)) && used_.insert(number).second;
}

}  // namespace trepak
