// Token Server: gives workers tokens as they ask for them (Fela, section III-A).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_TOKEN_SERVER_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_TOKEN_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "ops/runtime/coordination/coordinator.h"
#include "ops/runtime/fela/fela_scheduler.h"
#include "ops/runtime/net/job_endpoints.h"

namespace trepak {

// Tells the worker its token, and those that have what the token needs to send it. Whoever keeps
// the others waiting beyond the deadline ends the job, and is named: with a token in hand, without
// having begun the iteration, or without asking for a token.
//
// Thread safety: as Endpoint says.
class FelaTokenServer : public Coordinator {
 public:
  // `rules` were checked.
  FelaTokenServer(const Options& options, const FelaRules& rules,
                  std::shared_ptr<ErrorLatch> errors)
      : Coordinator(options, "the token server", AllRanks(options.size), std::move(errors)),
        scheduler_(rules),
        in_hand_(options.size),
        heard_(options.size, Clock::now()) {}
  ~FelaTokenServer() override { Stop(); }

  // From any thread.
  FelaScheduler::Counters counters() const;

  // Seconds in which it was at work, over all messages.
  double busy_seconds() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;

 private:
  struct InHand {
    Clock::time_point since;     // when the worker was given it
    std::set<uint32_t> senders;  // of chunks that it reads
  };

  // All of these require mutex_.
  Status Answer(const Message& message);
  Status Carry(uint64_t iteration, const FelaScheduler::Orders& orders);
  Status CheckWaiting(Clock::time_point now) const;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  FelaScheduler scheduler_;
  std::map<uint64_t, double> losses_;  // by iteration: the sum of what was reported
  std::vector<InHand> in_hand_;        // by worker: its last token
  Clock::time_point nobody_away_;      // when nobody was last away whom others wait for
  // By worker: when it spoke, was let ahead, or an iteration ended, whichever was last.
  std::vector<Clock::time_point> heard_;
  Clock::time_point first_begun_;  // when the first worker began the oldest iteration
  bool any_has_begun_ = false;
  Clock::time_point said_here_;
  std::chrono::nanoseconds busy_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_TOKEN_SERVER_H_
