#include "ops/runtime/elastic_bsp/elastic_bsp_coordinator.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "ops/runtime/elastic_bsp/elastic_bsp_messages.h"

namespace trepak {
namespace {

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

double ElasticBspCoordinator::Now() const { return Seconds(Clock::now() - began_at_); }

ElasticBspScheduler::Counters ElasticBspCoordinator::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return scheduler_.counters();
}

std::vector<ElasticBspScheduler::Step> ElasticBspCoordinator::recorded() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return scheduler_.recorded();
}

Status ElasticBspCoordinator::Begin() { return Carry(scheduler_.Begin(Now())); }

Status ElasticBspCoordinator::Handle(Message message) {
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(BeginWhenConnected());
  const Header& header = message.header;
  switch (header.kind) {
    case elastic_bsp::kStepped:
      return OnStepped(message);
    case elastic_bsp::kFetched:
      if (header.round == fetching_for_) {  // or it is of one that went on without it
        OnFetched(header.sender);
      }
      return OkStatus();
    case coordination::kDrain:
      return OnDrain(header);
    default:
      return Unexpected(header, name());
  }
}

Status ElasticBspCoordinator::OnStepped(const Message& message) {
  elastic_bsp::Stepped step;
  TREPAK_RETURN_IF_ERROR(ReadBody(message, &step));
  const uint32_t rank = message.header.sender;
  if (!scheduler_.is_at_step(rank)) {
    return InvalidArgumentError("rank " + std::to_string(rank) +
                                " ended a step that it can't have taken");
  }
  if (!std::isfinite(step.communicated) || !std::isfinite(step.held_up)) {
    return InvalidArgumentError("rank " + std::to_string(rank) +
                                " says of a step that it took no finite time");
  }
  return Carry(scheduler_.End(rank, Now(), step.communicated, step.held_up));
}

void ElasticBspCoordinator::OnFetched(uint32_t rank) {
  if (fetching_.erase(rank) != 0 && fetching_.empty()) {
    Message open;
    open.header.kind = elastic_bsp::kOpen;
    open.header.round = fetching_for_;
    Broadcast(open);
    scheduler_.Excuse(Now());
  }
}

Status ElasticBspCoordinator::OnDrain(const Header& header) {
  TREPAK_RETURN_IF_ERROR(AddDraining(header.sender));
  TREPAK_RETURN_IF_ERROR(Carry(scheduler_.Pause(header.sender, Now())));
  if (!all_drain()) {
    return OkStatus();
  }
  EndDrain();
  Message drained;
  drained.header.kind = coordination::kDrained;
  Broadcast(drained);
  return Carry(scheduler_.Begin(Now()));
}

Status ElasticBspCoordinator::Carry(const ElasticBspScheduler::Orders& orders) {
  for (const uint32_t rank : orders.taken_out) {
    std::fprintf(stderr,
                 "trepak: rank %u does not answer, or waits for one that does not; others go on "
                 "without it where they can.\n",
                 rank);
  }
  for (const uint32_t rank : orders.back) {
    std::fprintf(stderr, "trepak: rank %u answers again, and soon takes part again.\n", rank);
  }
  if (orders.barrier) {
    TREPAK_RETURN_IF_ERROR(CheckThatAllAreHere());
    fetching_for_ = scheduler_.superstep();
    fetching_since_ = Now();
    for (const ElasticBspScheduler::Grant& grant : orders.grants) {
      fetching_.insert(grant.worker);
    }
  }
  return Tell(orders.grants, orders.barrier);
}

Status ElasticBspCoordinator::Tell(const std::vector<ElasticBspScheduler::Grant>& grants,
                                   bool at_barrier) {
  for (const ElasticBspScheduler::Grant& grant : grants) {
    const elastic_bsp::Grant body{grant.steps, scheduler_.superstep(),
                                  static_cast<uint32_t>(grants.size()), at_barrier ? 1U : 0U};
    TREPAK_RETURN_IF_ERROR(Send(grant.worker, {}, MessageOf(elastic_bsp::kGrant, body)));
  }
  return OkStatus();
}

Status ElasticBspCoordinator::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(BeginWhenConnected());
  const double seconds = Now();
  TREPAK_RETURN_IF_ERROR(CheckFetching(seconds));
  if (fetching_.empty()) {
    TREPAK_RETURN_IF_ERROR(Carry(scheduler_.Tick(seconds)));
  }
  TREPAK_RETURN_IF_ERROR(CheckWaiting(seconds));
  if (seconds - told_waiting_ >= Seconds(options().deadline) / 4) {
    told_waiting_ = seconds;
    TREPAK_RETURN_IF_ERROR(Tell(scheduler_.Waiting(), false));
  }
  return CheckDraining(now);
}

Status ElasticBspCoordinator::CheckFetching(double now) {
  const double waited = now - fetching_since_;
  const std::set<uint32_t> fetching = fetching_;
  for (const uint32_t rank : fetching) {
    if (waited > Seconds(options().deadline)) {
      return WaitedTooLong({fetching.begin(), fetching.end()}, "fetch the parameters of a barrier");
    }
    if (waited > scheduler_.patience(rank)) {
      OnFetched(rank);
      TREPAK_RETURN_IF_ERROR(Carry(scheduler_.TakeOut(rank, now)));
    }
  }
  return OkStatus();
}

Status ElasticBspCoordinator::CheckWaiting(double now) const {
  const std::vector<uint32_t> awaited = scheduler_.Awaited(now, Seconds(options().deadline));
  return awaited.empty() ? OkStatus() : WaitedTooLong(awaited, "end a step, which others wait for");
}

}  // namespace trepak
