// What controllers share: rank 0's, or the first one's of a group, of ranks that go at their own
// pace.

#ifndef TREPAK_HOROVOD_EXT_RUNTIME_LED_CONTROLLER_H_
#define TREPAK_HOROVOD_EXT_RUNTIME_LED_CONTROLLER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_ext/runtime/endpoint.h"

namespace trepak {

// Begins when its flows are open, tells its members of a failure, and names whom it misses.
//
// Thread safety: as Endpoint says; what is protected is for the transport's thread.
class LedController : public Endpoint {
 protected:
  // `name`: what errors call it.
  LedController(const Options& options, std::string name, std::vector<uint32_t> members,
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

  // Lets members begin.
  virtual Status Begin() = 0;

  // Begins, once, when the flows are open.
  Status BeginWhenConnected() {
    if (began_ || !is_connected()) {
      return OkStatus();
    }
    began_ = true;
    return Begin();
  }

  const std::string& name() const { return name_; }
  const std::vector<uint32_t>& members() const { return members_; }

  // Members that are not in a set or map.
  template <typename Ranks>
  std::vector<uint32_t> MembersWithout(const Ranks& others) const {
    std::vector<uint32_t> ranks;
    for (const uint32_t member : members_) {
      if (others.count(member) == 0) {
        ranks.push_back(member);
      }
    }
    return ranks;
  }

  Status CheckThatAllAreHere() const {
    for (const uint32_t member : members_) {
      if (HasLeft(member)) {
        return UnavailableError("rank " + std::to_string(member) +
                                " has ended its training while others go on: let all ranks end " +
                                "together");
      }
    }
    return OkStatus();
  }

  // That these did not do something in time.
  Status WaitedTooLong(const std::vector<uint32_t>& ranks, const std::string& what) const {
    std::string names;
    for (const uint32_t rank : ranks) {
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    return DeadlineExceededError(
        name_ + " waited " + std::to_string(options().deadline.count() / 1000) + " s for " + names +
        " to " + what + ". If that can take so long, raise TREPAK_DEADLINE_SECONDS");
  }

  // The same, where members drain at the end of an epoch.
  Status WaitedTooLongForADrain(const std::vector<uint32_t>& ranks) const {
    return WaitedTooLong(ranks, "come to the end of an epoch, or of training, as others have");
  }

 private:
  const std::string name_;
  const std::vector<uint32_t> members_;
  std::atomic<bool> has_told_{false};  // of a failure
  bool began_ = false;
};

}  // namespace trepak

#endif  // TREPAK_HOROVOD_EXT_RUNTIME_LED_CONTROLLER_H_
