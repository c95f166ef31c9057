// What coordinators share: rank 0's, or the first one's of a group, of ranks that go at their own
// pace.

#ifndef TREPAK_OPS_RUNTIME_COORDINATION_COORDINATOR_H_
#define TREPAK_OPS_RUNTIME_COORDINATION_COORDINATOR_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/endpoint.h"

namespace trepak {

// Between a coordinator and its workers, at the end of an epoch or of training.
namespace coordination {
constexpr MessageKind kDrain = KindOf("coordination", 0xf2);    // computes no more until all say so
constexpr MessageKind kDrained = KindOf("coordination", 0xf3);  // all have
}  // namespace coordination

// Begins when its flows are open, tells its members of a failure, knows who has come to the end of
// an epoch, and names whom it misses.
//
// Thread safety: as Endpoint says; what is protected is for the transport's thread.
class Coordinator : public Endpoint {
 protected:
  // `name`: what errors call it.
  Coordinator(const Options& options, std::string name, std::vector<uint32_t> members,
              std::shared_ptr<ErrorLatch> errors)
      : Endpoint(options, std::move(errors)),
        name_(std::move(name)),
        members_(std::move(members)) {}

  void Failed(const Status& status) override {
    // The worker beside it, whose error it may be, has no other peer.
    if (status.code() != StatusCode::kCancelled && !has_told_.exchange(true)) {
      TellOfFailure(status);
    }
  }

  // Lets members begin, where they wait for that.
  virtual Status Begin() { return OkStatus(); }

  // Begins, once, when the flows are open.
  Status BeginWhenConnected() {
    if (began_ || !is_connected()) {
      return OkStatus();
    }
    began_ = true;
    return Begin();
  }

  // Begins, and looks whether who drains waits too long. Subclasses' own begin with it.
  Status Tick(Clock::time_point now) override {
    TREPAK_RETURN_IF_ERROR(BeginWhenConnected());
    return CheckDraining(now);
  }

  const std::string& name() const { return name_; }
  const std::vector<uint32_t>& members() const { return members_; }

  Status CheckThatAllAreHere() const {
    for (const uint32_t member : members_) {
      if (HasLeft(member)) {
        return LeftWhileOthersGoOn(member);
      }
    }
    return OkStatus();
  }

  // That these did not do something in time.
  Status WaitedTooLong(const std::vector<uint32_t>& ranks, const std::string& what) const {
    return DeadlineExceededError(name_ + " waited " +
                                 std::to_string(options().deadline.count() / 1000) + " s for " +
                                 NamesOf(ranks) + " to " + what +
                                 ". If that can take so long, raise TREPAK_DEADLINE_SECONDS");
  }

  template <typename Ranks>
  static std::string NamesOf(const Ranks& ranks) {
    std::string names;
    for (const uint32_t rank : ranks) {
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    return names;
  }

  // A member has come to the end of an epoch, where it waits for the others.
  Status AddDraining(uint32_t member) {
    if (draining_.empty()) {
      first_drained_ = Clock::now();
    }
    if (!draining_.insert(member).second) {
      return InvalidArgumentError("rank " + std::to_string(member) + " drains twice");
    }
    return OkStatus();
  }
  bool drains(uint32_t member) const { return draining_.count(member) != 0; }
  bool all_drain() const { return draining_.size() == members_.size(); }
  void EndDrain() { draining_.clear(); }

  // Fails if one whom those that drain wait for has left, or has not come in time.
  Status CheckDraining(Clock::time_point now) const {
    if (draining_.empty()) {
      return OkStatus();
    }
    TREPAK_RETURN_IF_ERROR(CheckThatAllAreHere());
    if (now - first_drained_ < options().deadline) {
      return OkStatus();
    }
    std::vector<uint32_t> missing;
    std::copy_if(members_.begin(), members_.end(), std::back_inserter(missing),
                 [this](uint32_t member) { return !drains(member); });
    return WaitedTooLong(missing, "come to the end of an epoch, or of training, as others have");
  }

 private:
  const std::string name_;
  const std::vector<uint32_t> members_;
  std::atomic<bool> has_told_{false};  // of a failure
  bool began_ = false;
  std::set<uint32_t> draining_;
  Clock::time_point first_drained_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_COORDINATION_COORDINATOR_H_
