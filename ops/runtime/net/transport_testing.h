// For tests of transports: a receiver that keeps what comes, and messages to send.

#ifndef TREPAK_OPS_RUNTIME_NET_TRANSPORT_TESTING_H_
#define TREPAK_OPS_RUNTIME_NET_TRANSPORT_TESTING_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/runtime/net/transport.h"

namespace trepak {

using std::chrono::milliseconds;

constexpr milliseconds kDeadline{30'000};

// Thread safety: every method may be called from any thread.
class Collector : public Transport::Receiver {
 public:
  void OnMessage(Message message) override {
    std::unique_lock<std::mutex> lock(mutex_);
    messages_.push_back(std::move(message));
    changed_.notify_all();
    changed_.wait_for(lock, kDeadline, [&] { return !held_; });
  }
  // Lets the receiving thread stand still with its next message, or go on.
  void Hold(bool held) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void OnFailure(uint32_t, const Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_.push_back(status);
    changed_.notify_all();
  }
  void OnTick() override { ++ticks; }

  // Waits for so many; returns what came.
  std::vector<Message> Messages(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kDeadline, [&] { return messages_.size() >= count; });
    return messages_;
  }
  std::vector<Status> Failures(size_t count, milliseconds deadline = kDeadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, deadline, [&] { return failures_.size() >= count; });
    return failures_;
  }

  std::atomic<int> ticks{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  std::vector<Status> failures_;
  bool held_ = false;
};

inline Message Push(uint32_t key, size_t bytes) {
  Message message;
  message.header.kind = KindOf("test", 1);
  message.header.key = key;
  message.payload = Payload::Allocate(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<unsigned char*>(message.payload.mutable_data())[i] =
        static_cast<unsigned char>(i + key);
  }
  return message;
}

inline bool Same(const Message& a, const Message& b) {
  return a.header.key == b.header.key && a.payload.view() == b.payload.view();
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_TRANSPORT_TESTING_H_
