// Tells workers how far they may go: runs the scheduler of ElasticBSP, SSP or ASP on the first
// rank.

#ifndef TREPAK_HOROVOD_EXT_RUNTIME_ELASTIC_BSP_CONTROLLER_H_
#define TREPAK_HOROVOD_EXT_RUNTIME_ELASTIC_BSP_CONTROLLER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "horovod_ext/runtime/elastic_bsp_scheduler.h"
#include "horovod_ext/runtime/endpoint.h"

namespace trepak {

// Workers say when they have ended a step, and get to know how many they may take. All times are
// those at which messages arrive here, so hosts' clocks need not agree.
//
// After a barrier all fetch the same parameters: none of them may change these before all have, so
// each says when it has, and pushes its next change when it hears that all have. Who does not say
// so is taken out as one that does not end its step.
//
// Thread safety: as Endpoint says.
class ElasticBspController : public Endpoint {
 public:
  ElasticBspController(const Options& options, const ElasticBspScheduler::Rules& rules,
                       std::shared_ptr<ErrorLatch> errors)
      : Endpoint(options, std::move(errors)), scheduler_(rules) {}
  ~ElasticBspController() override { Stop(); }

  // What the scheduler has counted, and recorded. From any thread.
  ElasticBspScheduler::Counters counters() const;
  std::vector<ElasticBspScheduler::Step> recorded() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  // All of these require mutex_.
  // Lets workers begin, when the flows are open.
  Status Begin();
  Status OnStepped(const Header& header, const Payload& payload);
  Status OnDrain(const Header& header);
  void OnFetched(uint32_t rank);
  // Takes out who does not fetch.
  Status CheckFetching(double now);
  Status CheckWaiting(double now) const;
  Status WaitedTooLong(const std::vector<uint32_t>& ranks, const std::string& what) const;
  Status Carry(const ElasticBspScheduler::Orders& orders);
  Status CheckThatAllAreHere() const;
  std::vector<uint32_t> ThoseWhoTrain() const;

  double Now() const;

  const Clock::time_point began_at_ = Clock::now();
  std::atomic<bool> has_told_{false};  // of a failure

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  ElasticBspScheduler scheduler_;
  bool began_ = false;
  std::set<uint32_t> fetching_;  // after a barrier
  uint64_t fetching_for_ = 0;    // the superstep that it begins
  double fetching_since_ = 0;
  std::set<uint32_t> draining_;
  Clock::time_point first_drained_;
};

}  // namespace trepak

#endif  // TREPAK_HOROVOD_EXT_RUNTIME_ELASTIC_BSP_CONTROLLER_H_
