// What strangers can do to a process that listens: they get no memory of it, and no peer's place.

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "ops/runtime/net/resident_memory.h"
#include "ops/runtime/net/zmtp_listening_test.h"

namespace trepak {
namespace {

constexpr uint64_t kHugeFrame = 1932735283;  // 1.8 GiB

class StrangersTest : public ListeningTest {
 protected:
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
    EXPECT_LT(taken, kPatience);
    EXPECT_EQ(receiver_.messages, 1);
    EXPECT_EQ(receiver_.failures, 0);
  }
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

}  // namespace
}  // namespace trepak
