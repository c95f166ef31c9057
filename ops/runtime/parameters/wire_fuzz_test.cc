// Garbage from the network never ends a rank, is never taken for a message, and is counted.
//
// FUZZ_SECONDS and FUZZ_INPUTS say how long, and how many inputs at least, each test
// tries; with AddressSanitizer `make test` gives them half a minute each, `make soak` 1,000,000
// inputs each.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <random>
#include <thread>

#include "ops/runtime/net/fake_network.h"
#include "ops/runtime/net/zmq_transport.h"
#include "ops/runtime/net/zmtp_stranger.h"
#include "ops/runtime/parameters/parameter_client.h"
#include "ops/runtime/parameters/parameter_messages.h"
#include "ops/runtime/parameters/parameter_server.h"

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double FromEnvironment(const char* name, double otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atof(value);
}

// Says when a test has tried enough.
class Budget {
 public:
  bool Left() {
    ++inputs_;
    return inputs_ <= least_ || Clock::now() < end_;
  }
  int64_t inputs() const { return inputs_ - 1; }

 private:
  const int64_t least_ = static_cast<int64_t>(FromEnvironment("FUZZ_INPUTS", 1000));
  const Clock::time_point end_ =
      Clock::now() + milliseconds(static_cast<int64_t>(1000 * FromEnvironment("FUZZ_SECONDS", 1)));
  int64_t inputs_ = 0;
};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  // A number below `end`.
  size_t Below(size_t end) { return random_() % end; }

  std::string Garbage(size_t most) {
    std::string bytes(Below(most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  // Changes a few things about a valid input.
  std::string Mutate(std::string bytes) {
    for (size_t changes = 1 + Below(4); changes > 0; --changes) {
      const size_t at = bytes.empty() ? 0 : Below(bytes.size());
      switch (Below(6)) {
        case 0:
          if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
          break;
        case 1: {
          static const unsigned char kTelling[] = {0, 1, 0x7f, 0x80, 0xff, 0xfe, 4, 6};
          if (!bytes.empty()) bytes[at] = static_cast<char>(kTelling[Below(8)]);
          break;
        }
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, Garbage(16));
          break;
        case 4:
          bytes.erase(at, Below(16));
          break;
        default:
          bytes += bytes.substr(at);
          bytes.resize(std::min<size_t>(bytes.size(), 4096));
      }
    }
    return bytes;
  }

 private:
  std::mt19937 random_;
};

std::string Wire(const Header& header, const std::string& payload) {
  const HeaderBytes bytes = Encode(header, payload.size());
  return std::string(bytes.begin(), bytes.end()) + payload;
}

// A header and a payload of every kind, as peers send them.
std::vector<std::string> Messages() {
  std::vector<std::string> seeds;
  for (const MessageKind kind :
       {handshake::kHello, handshake::kChallenge, handshake::kProof, handshake::kWelcome,
        parameters::kPush, parameters::kPull, parameters::kDelta, parameters::kAssign,
        parameters::kAnswer, endpoint::kAbort, endpoint::kLeave}) {
    for (const size_t bytes : {size_t{0}, size_t{32}, size_t{96}}) {
      Header header;
      header.kind = kind;
      header.type = bytes == 0 ? ElementType::kNone : ElementType::kFloat32;
      header.flags = parameters::kWantsAnswer;
      header.sender = 1;
      seeds.push_back(Wire(header, std::string(bytes, '\1')));
    }
  }
  return seeds;
}

// What strangers say first: ZeroMQ of all ages, and other protocols.
std::vector<std::string> Greetings() {
  using std::string_literals::operator""s;
  const std::string signature = "\xff\0\0\0\0\0\0\0\1\x7f"s;
  const std::string v3 =
      signature + "\3\0NULL"s + std::string(16, '\0') + "\0"s + std::string(31, '\0');
  const std::string ready = "\4\x29\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\0"s;
  std::vector<std::string> greetings = {
      "\1\0"s,  // ZMTP 1.0: an empty identity
      "\1\0\5\1hello\1\0"s,
      signature + "\1\5\0\0"s,  // 2.0
      v3,
      v3 + ready,
      v3 + ready + "\1\70"s + std::string(56, 't') + "\0\0"s,
      zmtp::PlainHello("rank 0", "secret"),
      zmtp::PlainHello("", "") + zmtp::Initiate(),
      zmtp::Greeting("CURVE") + zmtp::Command("HELLO", "\1\0"s + std::string(192, 'c')),
      "GET / HTTP/1.1\r\n\r\n",
      "\x16\3\1\2\0\1\0\1\xfc\3\3"s,  // TLS
      "SSH-2.0-OpenSSH_9.2\r\n",
      "",
  };
  for (const std::string& message : Messages()) {
    const std::string header = message.substr(0, kHeaderBytes);
    const std::string payload = message.substr(kHeaderBytes);
    greetings.push_back(v3 + ready + "\1"s + static_cast<char>(header.size()) + header + "\0"s +
                        static_cast<char>(payload.size()) + payload);
  }
  return greetings;
}

int64_t Sum(const std::string& bytes) {
  int64_t sum = 0;
  for (const char byte : bytes) sum += byte;
  return sum;
}

// Mutated messages that got past authentication: only errors may come of them.
TEST(WireFuzzTest, EndpointsSurviveAnyMessage) {
  Mutator mutator(1);
  const std::vector<std::string> seeds = Messages();
  Budget budget;
  int64_t decoded = 0;
  FakeNetwork network;
  VariableTable variables;
  std::unique_ptr<ParameterServer> server;
  std::unique_ptr<ParameterClient> client;
  std::shared_ptr<ErrorLatch> errors;
  while (budget.Left()) {
    if (errors == nullptr || !errors->status().ok()) {  // a failed endpoint takes no more
      server.reset();
      client.reset();
      errors = std::make_shared<ErrorLatch>();
      const Endpoint::Options options{0, 2, milliseconds(60'000)};
      PartitionOptions partition;
      partition.servers = {0};
      server = std::make_unique<ParameterServer>(options, ParameterServer::ServerOptions{}, errors);
      client = std::make_unique<ParameterClient>(options, partition, errors, &variables);
      ASSERT_TRUE(variables.Add({0, "v", ElementType::kFloat32, 8}).ok());
      // There is no flow to push on, but the client awaits answers from now on.
      EXPECT_FALSE(client->Push(0, 0, Payload::Allocate(32)).ok());
    }
    const std::string bytes = mutator.Mutate(seeds[mutator.Below(seeds.size())]);
    const size_t header_bytes = std::min(bytes.size(), kHeaderBytes);
    Message message;
    message.payload = Payload::Copy(bytes.substr(header_bytes));
    if (!Decode(bytes.substr(0, header_bytes), message.payload.size(), &message.header).ok()) {
      continue;
    }
    ++decoded;
    message.header.sequence = 0;
    message.header.sender %= 4;  // two of which are no ranks
    if (mutator.Below(2) == 0) {
      server->OnMessage(message);
    } else {
      client->OnMessage(message);
    }
  }
  EXPECT_GT(decoded, 0);
  std::printf("%ld inputs, of which %ld were well-formed messages\n",
              static_cast<long>(budget.inputs()), static_cast<long>(decoded));
}

class Quiet : public Transport::Receiver {
 public:
  void OnMessage(Message message) override {
    if (message.header.key == 4711) {
      arrived.set_value();
    } else {
      ++others;
    }
  }
  void OnFailure(uint32_t, const Status&) override { ++failures; }
  void OnTick() override {}

  std::promise<void> arrived;
  std::atomic<int> others{0};
  std::atomic<int> failures{0};
};

// Waits a moment for an answer.
void Listen(int fd) {
  const timeval moment{0, 20'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment));
  char bytes[256];
  while (recv(fd, bytes, sizeof(bytes), 0) == sizeof(bytes)) {
  }
}

// Connects, sends, and leaves in one of the ways in which peers leave; false if it can't connect.
// What comes before `bytes` is heard out.
bool Intrude(int port, const std::string& hello, const std::string& bytes, Mutator* mutator) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) {
    close(fd);
    return false;
  }
  if (!hello.empty()) {
    [[maybe_unused]] const ssize_t said = send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    Listen(fd);
    Listen(fd);
  }
  const size_t first = bytes.empty() ? 0 : mutator->Below(bytes.size() + 1);
  [[maybe_unused]] ssize_t sent = send(fd, bytes.data(), first, MSG_NOSIGNAL);
  if (mutator->Below(4) == 0) {
    std::this_thread::yield();
  }
  sent = send(fd, bytes.data() + first, bytes.size() - first, MSG_NOSIGNAL);
  if (mutator->Below(2) == 0) {  // a reset, not an end
    const linger now{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(fd);
  return true;
}

TEST(WireFuzzTest, TransportSurvivesAnyStranger) {
  Quiet receivers[2];
  std::unique_ptr<ZmqTransport> transports[2];
  ZmqTransport::Options options;
  options.host = "127.0.0.1";
  options.secret = MakeSecret();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    options.rank = rank;
    ASSERT_TRUE(ZmqTransport::Start(options, &receivers[rank], &transports[rank]).ok());
  }
  const std::string address = transports[1]->address();
  ASSERT_TRUE(transports[0]->Open({1, 0, 0, address}, milliseconds(30'000)).ok());
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  Mutator mutator(2);
  const std::vector<std::string> seeds = Greetings();
  const std::vector<std::string> messages = Messages();
  Budget budget;
  int64_t connected = 0;
  int64_t checksum = 0;
  while (budget.Left()) {
    const std::string& seed = seeds[mutator.Below(seeds.size())];
    const std::string bytes = mutator.Below(8) == 0 ? seed : mutator.Mutate(seed);
    checksum += Sum(bytes);
    // Some have found a ticket somewhere, and so come to what is behind it.
    std::string hello;
    std::string said = bytes;
    if (mutator.Below(50) == 0) {
      const Ticket ticket = MakeTicket(options.secret, address);
      hello = zmtp::PlainHello(ticket.number, ticket.proof);
      const std::string message = mutator.Mutate(messages[mutator.Below(messages.size())]);
      said = zmtp::Initiate() +
             zmtp::Frame(zmtp::kMore, message.substr(0, std::min(message.size(), kHeaderBytes))) +
             zmtp::Frame(0, message.substr(std::min(message.size(), kHeaderBytes))) +
             mutator.Garbage(16);
    }
    if (Intrude(port, hello, said, &mutator)) {
      ++connected;
    } else {
      std::this_thread::sleep_for(milliseconds(10));  // all ports of this machine are in use
    }
  }
  EXPECT_GT(connected, 0);
  Message message;
  message.header.kind = parameters::kPush;
  message.header.key = 4711;
  ASSERT_TRUE(transports[0]->Send(1, 0, message).ok());
  ASSERT_EQ(receivers[1].arrived.get_future().wait_for(std::chrono::seconds(30)),
            std::future_status::ready);
  EXPECT_EQ(receivers[1].others, 0) << "garbage was taken for a message";
  EXPECT_EQ(receivers[1].failures, 0) << "garbage was taken for a peer's failure";
  EXPECT_GT(transports[1]->refused(), 0u);
  std::printf("%ld strangers, %ld refusals (checksum of inputs: %ld)\n",
              static_cast<long>(connected), static_cast<long>(transports[1]->refused()),
              static_cast<long>(checksum));
}

}  // namespace
}  // namespace trepak
