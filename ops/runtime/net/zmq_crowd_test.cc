// The rule of who makes place, by a simulated clock: that slow peers get in.

#include "ops/runtime/net/zmq_crowd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "ops/runtime/net/zmq_gate.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMicro = 1000;  // microseconds in a millisecond
constexpr uint64_t kTick = 100 * kMicro;

// Senders and strangers at one listening socket. Time is in microseconds.
class Simulation {
 public:
  explicit Simulation(size_t most)
      : draw_([this](uint32_t below) { return static_cast<uint32_t>(random_() % below); }),
        crowd_(most, draw_) {}

  // Strangers connect at random moments and say nothing until they are ended.
  void AddStrangers(uint64_t per_second) {
    // Until the moment, an exponential distribution's; the standard's differ between libraries.
    const double uniform = (static_cast<double>(random_() >> 11) + 1) / 9007199254740993.0;
    const auto gap = static_cast<uint64_t>(-std::log(uniform) * 1e6 / double(per_second));
    At(gap, [this, per_second] {
      const uint64_t stranger = Accept();
      At(static_cast<uint64_t>(ZmqGate::kProofDeadline.count()) * kMicro,
         [this, stranger] { crowd_.Remove(stranger); });
      AddStrangers(per_second);
    });
  }

  // A peer connects at a moment, and again until it is in.
  void AddPeer(uint64_t moment, uint64_t round_trip) {
    At(moment, [this, round_trip] { Try(now_, round_trip, 1); });
  }

  // Runs until all the peers are in, or a minute has passed.
  void Run() {
    while (!events_.empty() && now_ < 60'000 * kMicro && in_.size() < peers_) {
      const auto first = events_.begin();
      now_ = first->first;
      const std::function<void()> event = std::move(first->second);
      events_.erase(first);
      event();
    }
  }

  void Expect(size_t peers) { peers_ = peers; }

  // How long those who are in have tried, in seconds, in order.
  std::vector<double> Taken() const { return {in_.begin(), in_.end()}; }

 private:
  void At(uint64_t later, std::function<void()> event) {
    events_.emplace(now_ + later, std::move(event));
  }

  uint64_t Accept() {
    crowd_.Add(++came_);
    while (const std::optional<uint64_t> ended = crowd_.TakeOneTooMany()) {
      const auto peer = peers_standing_.find(*ended);
      if (peer != peers_standing_.end()) {
        const std::function<void()> on_end = std::move(peer->second);
        peers_standing_.erase(peer);
        on_end();
      } else if (*ended == came_) {
        ended_at_once_ = true;
      }
    }
    return came_;
  }

  void Try(uint64_t begun, uint64_t round_trip, int tries) {
    // SYN, its answer, and the acknowledgement by which the listener accepts.
    At(round_trip * 3 / 2, [=] {
      ended_at_once_ = false;
      // Half a round trip later the sender sees that it was ended. It looks when its thread ticks.
      const auto retry = [=] {
        const auto wait = static_cast<uint64_t>(RetryAfter(tries, draw_).count()) * kMicro;
        At(round_trip / 2 + wait + draw_(kTick), [=] { Try(begun, round_trip, tries + 1); });
      };
      const uint64_t connection = Accept();
      if (ended_at_once_) {
        retry();
        return;
      }
      peers_standing_[connection] = retry;
      // Greetings, the ticket and its answer, ZeroMQ's last words, and the first message.
      At(round_trip * 3, [=] {
        if (peers_standing_.erase(connection) != 0) {
          crowd_.Remove(connection);
          in_.insert(static_cast<double>(now_ - begun) / 1e6);
        }
      });
    });
  }

  std::mt19937_64 random_{1};
  const Draw draw_;
  ZmqCrowd crowd_;
  uint64_t now_ = 0;
  std::multimap<uint64_t, std::function<void()>> events_;
  uint64_t came_ = 0;
  bool ended_at_once_ = false;
  size_t peers_ = 0;
  std::map<uint64_t, std::function<void()>> peers_standing_;  // what they do when they are ended
  std::multiset<double> in_;
};

void Print(const char* what, const std::vector<double>& taken) {
  std::printf("%s: %zu got in, half of them in %.1f s, 9 of 10 in %.1f s, all in %.1f s\n", what,
              taken.size(), taken[taken.size() / 2], taken[taken.size() * 9 / 10], taken.back());
}

TEST(ZmqCrowdTest, SlowPeersGetInAmongStrangers) {
  constexpr size_t kPeers = 200;
  Simulation simulation(ZmqGate::kMostUnproven);
  simulation.AddStrangers(1000);
  simulation.Expect(kPeers);
  for (size_t i = 0; i < kPeers; ++i) {
    simulation.AddPeer((5000 + 200 * i) * kMicro, 100 * kMicro);
  }
  simulation.Run();
  const std::vector<double> taken = simulation.Taken();
  ASSERT_EQ(taken.size(), kPeers);
  Print("1,000 strangers a second, peers at 100 ms", taken);
  EXPECT_LT(taken[kPeers / 2], 2.5);
  EXPECT_LT(taken[kPeers * 9 / 10], 6);
  EXPECT_LT(taken.back(), 20);
}

TEST(ZmqCrowdTest, PeersWhoComeTogetherGetIn) {
  constexpr size_t kPeers = 4 * ZmqGate::kMostUnproven;
  Simulation simulation(ZmqGate::kMostUnproven);
  simulation.Expect(kPeers);
  for (size_t i = 0; i < kPeers; ++i) {
    simulation.AddPeer(0, 50 * kMicro);
  }
  simulation.Run();
  const std::vector<double> taken = simulation.Taken();
  ASSERT_EQ(taken.size(), kPeers);
  Print("four times as many peers at 50 ms as may stand, all at once", taken);
  EXPECT_LT(taken.back(), 5);
}

TEST(ZmqCrowdTest, NoMoreStandThanMay) {
  uint32_t asked = 0;
  ZmqCrowd crowd(3, [&](uint32_t below) {
    asked = below;
    return 1;
  });
  for (uint64_t connection = 10; connection < 13; ++connection) {
    crowd.Add(connection);
  }
  EXPECT_EQ(crowd.TakeOneTooMany(), std::nullopt);
  crowd.Add(13);
  EXPECT_EQ(crowd.TakeOneTooMany(), 11U) << "neither the oldest nor the newest";
  EXPECT_EQ(asked, 4U);
  EXPECT_EQ(crowd.TakeOneTooMany(), std::nullopt);
  crowd.Remove(11);  // gone already
  crowd.Remove(10);
  crowd.Add(14);
  EXPECT_EQ(crowd.TakeOneTooMany(), std::nullopt);
}

TEST(ZmqCrowdTest, RetriesComeLaterAndLaterAndNotTogether) {
  const auto least = [](uint32_t) { return 0; };
  const auto most = [](uint32_t below) { return below - 1; };
  int longest = 0;
  for (const int expected : {100, 200, 400, 500, 500}) {
    const int tries = ++longest;
    EXPECT_EQ(RetryAfter(tries, least), milliseconds(expected / 2));
    EXPECT_EQ(RetryAfter(tries, most), milliseconds(expected));
  }
  EXPECT_EQ(RetryAfter(1'000'000, most), milliseconds(500));
}

}  // namespace
}  // namespace trepak
