#include "ops/runtime/net/channel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trepak {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ElementsAre;

class Recording : public Transport {
 public:
  std::string address() const override { return "here"; }
  Status Open(const FlowTarget& target, milliseconds) override {
    send_buffers_.push_back(target.send_buffer);
    return OkStatus();
  }
  Status Send(uint32_t peer, uint8_t, Message message) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      sent_.emplace_back(peer, message.header.kind);
    }
    begun_ = true;
    std::this_thread::sleep_for(microseconds(100));  // so that another sender would come between
    return OkStatus();
  }
  void Stop() override {}

  bool begun() const { return begun_; }
  const std::vector<int>& send_buffers() const { return send_buffers_; }
  const std::vector<std::pair<uint32_t, MessageKind>>& sent() const { return sent_; }

 private:
  std::atomic<bool> begun_{false};
  std::vector<int> send_buffers_;
  std::mutex mutex_;
  std::vector<std::pair<uint32_t, MessageKind>> sent_;  // Guarded by mutex_.
};

Message OfKind(MessageKind kind) {
  Message message;
  message.header.kind = kind;
  return message;
}

TEST(ChannelTableTest, OnlyWhatLeavesThisRankHasASmallBuffer) {
  Recording transport;
  ChannelTable channels;
  ASSERT_TRUE(channels.Open(&transport, 1, {"a", "b", "c"}, {0}, 4096, milliseconds(100)).ok());
  EXPECT_THAT(transport.send_buffers(), ElementsAre(4096, 0, 4096));
}

TEST(ChannelTableTest, WhoActsUponABroadcastDoesNotOvertakeIt) {
  constexpr size_t kPeers = 16;
  for (int round = 0; round < 20; ++round) {
    Recording transport;
    ChannelTable channels;
    const std::vector<std::string> addresses(kPeers, "there");
    ASSERT_TRUE(channels.Open(&transport, 0, addresses, {0}, 0, milliseconds(100)).ok());
    std::thread acts([&] {
      while (!transport.begun()) {
      }
      channels.BroadcastOnAll(OfKind(KindOf("test", 2)));
    });
    channels.Broadcast(OfKind(KindOf("test", 1)));
    acts.join();
    ASSERT_EQ(transport.sent().size(), 2 * kPeers);
    for (size_t i = 0; i < 2 * kPeers; ++i) {
      const auto& [peer, kind] = transport.sent()[i];
      ASSERT_EQ(peer, i % kPeers);
      ASSERT_EQ(kind, i < kPeers ? KindOf("test", 1) : KindOf("test", 2));
    }
  }
}

TEST(ChannelTableTest, PrioritiesBeyondTheLastAreTheLast) {
  Recording transport;
  ChannelTable channels;
  ASSERT_TRUE(channels.Open(&transport, 0, {"0", "", "2"}, {10, 0}, 0, milliseconds(100)).ok());
  EXPECT_EQ(channels.Find(2, 7), channels.Find(2, 1));
  EXPECT_NE(channels.Find(2, 0), channels.Find(2, 1));
  EXPECT_EQ(channels.Find(1, 0), nullptr);
  EXPECT_THAT(channels.Peers(), ElementsAre(0, 2));
}

}  // namespace
}  // namespace trepak
