// What strangers can do to a process that listens: they get no memory of it, and no peer's place.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <thread>

#include "horovod_ext/runtime/zmq_transport.h"
#include "horovod_ext/runtime/zmtp_stranger.h"

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using zmtp::Stranger;

constexpr milliseconds kPatience{30'000};
constexpr uint64_t kHugeFrame = 1932735283;  // 1.8 GiB

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // the sanitizers keep what is let go
#else
constexpr bool kMemoryIsOurs = true;
#endif

// Bytes of this process in memory: now, "VmRSS", or at most since Forget, "VmHWM".
int64_t Resident(const std::string& what) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word == what + ":") {
      int64_t kilobytes = 0;
      file >> kilobytes;
      return kilobytes << 10;
    }
  }
  ADD_FAILURE() << "no " << what;
  return 0;
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

class Sink : public Transport::Receiver {
 public:
  void OnMessage(Message message) override {
    if (message.header.key == 7) {
      arrived.set_value();
    }
    ++messages;
  }
  void OnFailure(uint32_t, const Status&) override { ++failures; }
  void OnTick() override {}

  std::promise<void> arrived;
  std::atomic<int> messages{0};
  std::atomic<int> failures{0};
};

class StrangersTest : public testing::TestWithParam<bool> {
 protected:
  StrangersTest() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    Start(1, &receiver_, &listening_);
    address_ = listening_->address();
  }

  void Start(uint32_t rank, Sink* sink, std::unique_ptr<ZmqTransport>* transport) const {
    ZmqTransport::Options options;
    options.rank = rank;
    options.host = "127.0.0.1";
    options.secret = secret_;
    options.encrypt = GetParam();
    const Status status = ZmqTransport::Start(options, sink, transport);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Has a peer connect and be heard; returns how long it took.
  milliseconds ConnectAPeer() {
    Sink sink;
    std::unique_ptr<ZmqTransport> peer;
    const Clock::time_point begin = Clock::now();
    Start(0, &sink, &peer);
    const Status status = peer->Open({1, 0, 0, address_}, kPatience);
    EXPECT_TRUE(status.ok()) << status;
    Message message;
    message.header.kind = MessageKind::kPush;
    message.header.key = 7;
    message.payload = Payload::Allocate(1'000'000);
    EXPECT_TRUE(peer->Send(1, 0, message).ok());
    EXPECT_EQ(receiver_.arrived.get_future().wait_for(kPatience), std::future_status::ready);
    return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  }

  // Whether the listener ends the connection in time.
  static bool IsEnded(Stranger* stranger, milliseconds patience = kPatience) {
    const Clock::time_point deadline = Clock::now() + patience;
    while (!stranger->Ended()) {
      if (Clock::now() > deadline) {
        return false;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  // Whether it hears that before the connection is ended.
  static bool Hears(Stranger* stranger, const std::string& what) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    bool ended = false;
    while (stranger->heard().find(what) == std::string::npos && !ended && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
      ended = stranger->Ended();
    }
    return stranger->heard().find(what) != std::string::npos;
  }

  // Says it all, or until the connection is ended.
  static void Insist(Stranger* stranger, const std::string& bytes) {
    for (size_t said = 0; said < bytes.size() && !stranger->Ended();) {
      said += stranger->Say(bytes.substr(said, 1 << 18));
    }
  }

  // What each kind of stranger says, beside the mechanism that it can guess.
  static std::vector<std::string> Beginnings() {
    return {zmtp::Null(),
            zmtp::Greeting("NULL"),
            zmtp::Greeting("PLAIN"),
            zmtp::Greeting("CURVE"),
            zmtp::PlainHello("rank 0", "secret"),
            zmtp::PlainHello("rank 0", "secret") + zmtp::Initiate()};
  }

  // Runs `attack` time and again while `check` runs.
  template <typename Attack, typename Check>
  static void During(const Attack& attack, const Check& check) {
    std::atomic<bool> over{false};
    std::thread attacker([&] {
      while (!over) {
        attack();
      }
    });
    std::this_thread::sleep_for(milliseconds(300));
    check();
    over = true;
    attacker.join();
  }

  // Measures what the process holds at most because of an attack, and that a peer gets through.
  template <typename Attack>
  void Withstand(const char* name, const Attack& attack, int64_t most_bytes) {
    attack();  // what the attackers themselves need
    ForgetPeak();
    const int64_t before = Resident("VmRSS");
    milliseconds taken{0};
    During(attack, [&] { taken = ConnectAPeer(); });
    const int64_t peak = Resident("VmHWM") - before;
    const int64_t kept = Resident("VmRSS") - before;
    std::printf("%s: %.1f MiB at most, %.1f MiB afterwards, a peer got through in %d ms\n", name,
                peak / 1048576.0, kept / 1048576.0, static_cast<int>(taken.count()));
    if (kMemoryIsOurs) {
      EXPECT_LT(peak, most_bytes);
      EXPECT_LT(kept, most_bytes);
    }
    EXPECT_LT(taken, milliseconds(5000));
    EXPECT_EQ(receiver_.messages, 1);
    EXPECT_EQ(receiver_.failures, 0);
  }

  const Secret secret_ = MakeSecret();
  Sink receiver_;
  std::unique_ptr<ZmqTransport> listening_;
  std::string address_;
};

INSTANTIATE_TEST_SUITE_P(Flows, StrangersTest, testing::Bool(), [](const auto& flows) {
  return std::string(flows.param ? "Encrypted" : "Plain");
});

TEST_P(StrangersTest, HugeFramesGetNoMemory) {
  const std::string content(32 << 20, 'x');
  const auto attack = [&] {
    for (const std::string& beginning : Beginnings()) {
      for (int i = 0; i < 3; ++i) {
        Stranger stranger(address_);
        Insist(&stranger, beginning + zmtp::FrameHeader(i == 0 ? zmtp::kCommand : 0, kHugeFrame));
        Insist(&stranger, content);
      }
    }
  };
  Withstand("unfinished frames of 1.8 GiB", attack, 12 << 20);
}

TEST_P(StrangersTest, FramesWithinTheBoundGetLittle) {
  const std::string content(kPartBytes - 1, 'x');
  const auto attack = [&] {
    std::vector<Stranger> strangers;
    for (size_t i = 0; i < ZmqGate::kMostUnproven; ++i) {
      strangers.emplace_back(address_);
      Insist(&strangers.back(), zmtp::Greeting(GetParam() ? "CURVE" : "PLAIN") +
                                    zmtp::FrameHeader(zmtp::kCommand, kPartBytes));
      Insist(&strangers.back(), content);
    }
  };
  Withstand("unfinished frames of 4 MiB", attack, 48 << 20);
}

TEST_P(StrangersTest, ManyPartsGetNoMemory) {
  std::string parts;
  for (int i = 0; i < 20'000; ++i) {
    parts += zmtp::Frame(zmtp::kMore, std::string(1000, 'x'));
  }
  const auto attack = [&] {
    for (const std::string& beginning : Beginnings()) {
      Stranger stranger(address_);
      Insist(&stranger, beginning);
      Insist(&stranger, parts);
    }
  };
  Withstand("messages of 20,000 parts", attack, 12 << 20);
}

TEST_P(StrangersTest, CrowdsKeepNobodyOut) {
  std::vector<Stranger> crowd;
  for (int i = 0; i < 2000; ++i) {
    crowd.emplace_back(address_);
  }
  size_t next = 0;
  const auto attack = [&] {  // always 2,000 connections, half of which say nothing
    for (int i = 0; i < 20; ++i, ++next) {
      Stranger& stranger = crowd[next % crowd.size()];
      stranger = Stranger(address_);
      if (next % 2 == 0) {
        stranger.Say(Beginnings()[next / 2 % 6]);
      }
    }
    std::this_thread::sleep_for(milliseconds(10));  // 2,000 in a second
  };
  Withstand("2,000 connections", attack, 12 << 20);
}

TEST_P(StrangersTest, MorePeersThanMayStandBeforeItAllGetIn) {
  constexpr size_t kFlows = 3 * ZmqGate::kMostUnproven;
  Sink sink;
  std::unique_ptr<ZmqTransport> peer;
  Start(0, &sink, &peer);
  std::vector<std::future<Status>> opened;
  for (size_t i = 0; i < kFlows; ++i) {
    opened.push_back(std::async(std::launch::async, [&, i] {
      return peer->Open({1, static_cast<uint8_t>(i), 0, address_}, kPatience);
    }));
  }
  for (std::future<Status>& one : opened) {
    const Status status = one.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(sink.failures, 0);
}

TEST_P(StrangersTest, ConnectionsThatProveNothingAreBounded) {
  std::vector<Stranger> crowd;
  for (size_t i = 0; i < 3 * ZmqGate::kMostUnproven; ++i) {
    crowd.emplace_back(address_);
  }
  const auto ended = [&] {
    return static_cast<size_t>(std::count_if(crowd.begin(), crowd.end(),
                                             [](Stranger& stranger) { return stranger.Ended(); }));
  };
  const Clock::time_point begin = Clock::now();
  while (ended() < 2 * ZmqGate::kMostUnproven && Clock::now() - begin < kPatience) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(ended(), 2 * ZmqGate::kMostUnproven) << "no more than these";
  EXPECT_LT(Clock::now() - begin, ZmqGate::kProofDeadline);
  // The rest have their time, and no more.
  while (ended() < crowd.size() && Clock::now() - begin < kPatience) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(ended(), crowd.size());
  EXPECT_GE(Clock::now() - begin, ZmqGate::kProofDeadline - milliseconds(500));
}

TEST_P(StrangersTest, LongFramesEndAConnection) {
  const std::string greeting = zmtp::Greeting(GetParam() ? "CURVE" : "PLAIN");
  Stranger too_long(address_);
  Insist(&too_long, greeting + zmtp::FrameHeader(zmtp::kCommand, kMostFrameBytes + 1));
  EXPECT_TRUE(IsEnded(&too_long, ZmqGate::kProofDeadline / 2));
  Stranger longest(address_);
  Insist(&longest, greeting + zmtp::FrameHeader(zmtp::kCommand, kMostFrameBytes));
  EXPECT_FALSE(IsEnded(&longest, milliseconds(200))) << "it has begun a frame that may be";
  Insist(&longest, std::string(2 * ZmqGate::kMostProofBytes, 'x'));
  EXPECT_TRUE(IsEnded(&longest, ZmqGate::kProofDeadline / 2)) << "no proof is so long";
}

TEST_P(StrangersTest, TicketsOpenPlainConnectionsOnce) {
  const Ticket ticket = MakeTicket(secret_, address_);
  const std::string said = zmtp::PlainHello(ticket.number, ticket.proof);
  Stranger first(address_);
  Insist(&first, said);
  EXPECT_EQ(Hears(&first, "WELCOME"), !GetParam());
  Insist(&first, zmtp::Initiate());
  EXPECT_EQ(Hears(&first, "READY"), !GetParam()) << "what follows shows nothing, otherwise";
  Stranger second(address_);
  Insist(&second, said);
  // ZeroMQ 4.3.4 misspells ERROR.
  EXPECT_EQ(Hears(&second, "RROR\003400"), !GetParam()) << "it was used before";
  EXPECT_EQ(second.heard().find("WELCOME"), std::string::npos);
  EXPECT_EQ(receiver_.messages, 0);
}

// Passes bytes on between two ends, and keeps them.
class Eavesdropper {
 public:
  explicit Eavesdropper(const std::string& to) : listening_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(where);
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(listening_, address, size), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
    getsockname(listening_, address, &size);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(where.sin_port));
    thread_ = std::thread([this, to] {
      Stranger near(accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK));
      Stranger far(to);
      size_t told_near = 0;
      size_t told_far = 0;
      while (!over_ && !near.Ended() && !far.Ended()) {
        told_far += far.Say(near.heard().substr(told_far));
        told_near += near.Say(far.heard().substr(told_near));
        std::this_thread::sleep_for(milliseconds(1));
      }
      heard_ = near.heard();
    });
  }
  ~Eavesdropper() { close(listening_); }

  const std::string& address() const { return address_; }
  const std::string& Heard() {
    over_ = true;
    thread_.join();
    return heard_;
  }

 private:
  const int listening_;
  std::string address_;
  std::string heard_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST_P(StrangersTest, EncryptedFlowsTellEavesdroppersNothing) {
  if (!GetParam()) {
    GTEST_SKIP() << "a plain flow does not open by way of another address: see ProofCheckTest";
  }
  const std::string text = "what a rank tells another";
  Eavesdropper between(address_);
  {
    Sink sink;
    std::unique_ptr<ZmqTransport> peer;
    Start(0, &sink, &peer);
    ASSERT_TRUE(peer->Open({1, 0, 0, between.address()}, kPatience).ok());
    Message message;
    message.header.kind = MessageKind::kPush;
    message.header.key = 7;
    message.payload = Payload::Allocate(text.size());
    std::copy(text.begin(), text.end(), static_cast<char*>(message.payload.mutable_data()));
    ASSERT_TRUE(peer->Send(1, 0, message).ok());
    ASSERT_EQ(receiver_.arrived.get_future().wait_for(kPatience), std::future_status::ready);
  }
  const std::string& heard = between.Heard();
  EXPECT_GT(heard.size(), text.size());
  EXPECT_EQ(heard.find(text), std::string::npos);
  EXPECT_EQ(heard.find("TRPK"), std::string::npos) << "a header of trepak's";
}

}  // namespace
}  // namespace trepak
