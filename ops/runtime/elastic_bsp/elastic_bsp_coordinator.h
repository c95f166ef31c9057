// Tells workers how far they may go: runs the scheduler of ElasticBSP, SSP or ASP on the first
// rank.

#ifndef TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_COORDINATOR_H_
#define TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "ops/runtime/coordination/coordinator.h"
#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"
#include "ops/runtime/net/job_endpoints.h"

namespace trepak {

// Workers say when they have ended a step, and get to know how many they may take. All times are
// those at which messages arrive here, so hosts' clocks need not agree.
//
// After a barrier all fetch the same parameters: none of them may change these before all have, so
// each says when it has, and pushes its next change when it hears that all have. Who does not say
// so is taken out as one that does not end its step.
//
// Whoever waits is told again and again what it was granted, so that it knows that the others go
// on: a superstep may be longer than the deadline, a step of it may not.
//
// Thread safety: as Endpoint says.
class ElasticBspCoordinator : public Coordinator {
 public:
  ElasticBspCoordinator(const Options& options, const ElasticBspScheduler::Rules& rules,
                        std::shared_ptr<ErrorLatch> errors)
      : Coordinator(options, "the coordinator of ranks' steps", AllRanks(rules.workers),
                    std::move(errors)),
        scheduler_(rules) {}
  ~ElasticBspCoordinator() override { Stop(); }

  // What the scheduler has counted, and recorded. From any thread.
  ElasticBspScheduler::Counters counters() const;
  std::vector<ElasticBspScheduler::Step> recorded() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  Status Begin() override;

 private:
  // All of these, and Begin, require mutex_.
  Status OnStepped(const Message& message);
  Status OnDrain(const Header& header);
  void OnFetched(uint32_t rank);
  // Takes out who does not fetch.
  Status CheckFetching(double now);
  Status CheckWaiting(double now) const;
  Status Carry(const ElasticBspScheduler::Orders& orders);
  // Tells workers how many steps they may have taken.
  Status Tell(const std::vector<ElasticBspScheduler::Grant>& grants, bool at_barrier);

  double Now() const;

  const Clock::time_point began_at_ = Clock::now();

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  ElasticBspScheduler scheduler_;
  std::set<uint32_t> fetching_;  // after a barrier
  uint64_t fetching_for_ = 0;    // the superstep that it begins
  double fetching_since_ = 0;
  double told_waiting_ = 0;  // when those that wait heard last that this is here
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ELASTIC_BSP_ELASTIC_BSP_COORDINATOR_H_
