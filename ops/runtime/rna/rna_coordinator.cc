#include "ops/runtime/rna/rna_coordinator.h"

#include <algorithm>

#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

Message OfRound(MessageKind kind, uint64_t round) {
  Message message;
  message.header.kind = kind;
  message.header.round = round;
  return message;
}

}  // namespace

Status RnaCoordinator::Handle(Message message) {
  TREPAK_RETURN_IF_ERROR(BeginWhenConnected());
  const Header& header = message.header;
  const bool is_member =
      std::find(members().begin(), members().end(), header.sender) != members().end();
  if (!is_member || header.round > round_) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) + " answers in round " +
                                std::to_string(header.round) + ", the coordinator is in round " +
                                std::to_string(round_) + (is_member ? "" : " of others"));
  }
  switch (header.kind) {
    case rna::kReady:
      return OnReady(header);
    case coordination::kDrain:
      return OnDrain(header);
    case rna::kExchanged:
      return OnExchanged(header);
    default:
      return Unexpected(header, name());
  }
}

Status RnaCoordinator::OnReady(const Header& header) {
  // Otherwise the probe has expired: its round has started.
  if (header.round == round_ && probed_.erase(header.sender) != 0) {
    answered_.insert(header.sender);
  }
  return Proceed(header.sender);
}

Status RnaCoordinator::OnExchanged(const Header& header) {
  if (header.round >= round_) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                " exchanged parameters after round " +
                                std::to_string(header.round) + ", which has not started");
  }
  Broadcast(OfRound(rna::kAdopt, header.round));
  return OkStatus();
}

Status RnaCoordinator::OnDrain(const Header& header) {
  TREPAK_RETURN_IF_ERROR(AddDraining(header.sender));
  // What it had when it had not yet heard of a round's start went into that round.
  if ((header.flags & rna::kHasGradients) != 0 && header.round == round_) {
    with_gradients_.insert(header.sender);
  }
  probed_.erase(header.sender);
  TREPAK_RETURN_IF_ERROR(Probe());
  // Enough may have answered now that fewer can.
  return Proceed(answered_.empty() ? header.sender : *answered_.begin());
}

Status RnaCoordinator::BeginRound() {
  probed_.clear();
  answered_.clear();
  return Probe();
}

Status RnaCoordinator::Probe() {
  const size_t wanted = std::max(rules_.choices, rules_.quorum);
  std::vector<uint32_t> idle = Idle();
  while (probed_.size() + answered_.size() < wanted && !idle.empty()) {
    std::uniform_int_distribution<size_t> draw(0, idle.size() - 1);
    const size_t drawn = draw(random_);
    const uint32_t rank = idle[drawn];
    idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(drawn));
    probed_.insert(rank);
    TREPAK_RETURN_IF_ERROR(Send(rank, {}, OfRound(rna::kProbe, round_)));
  }
  return OkStatus();
}

std::vector<uint32_t> RnaCoordinator::Idle() const {
  std::vector<uint32_t> idle;
  for (const uint32_t rank : members()) {
    if (probed_.count(rank) + answered_.count(rank) == 0 && !drains(rank) && !HasLeft(rank)) {
      idle.push_back(rank);
    }
  }
  return idle;
}

Status RnaCoordinator::Proceed(uint32_t latest) {
  if (all_drain()) {
    return EndPhase();
  }
  const size_t possible = answered_.size() + probed_.size() + Idle().size();
  const bool enough = answered_.size() >= std::min<size_t>(rules_.quorum, possible);
  return enough && !answered_.empty() ? Start(latest) : OkStatus();
}

Status RnaCoordinator::Start(uint32_t initiator) {
  TREPAK_RETURN_IF_ERROR(CheckThatAllAreHere());
  with_gradients_.clear();
  Message go = OfRound(rna::kGo, round_);
  go.header.key = initiator;
  Broadcast(go);
  ++round_;
  return BeginRound();
}

Status RnaCoordinator::EndPhase() {
  if (!with_gradients_.empty()) {
    TREPAK_RETURN_IF_ERROR(Start(*with_gradients_.begin()));
  }
  EndDrain();
  Broadcast(OfRound(coordination::kDrained, round_));
  return BeginRound();
}

Status RnaCoordinator::Tick(Clock::time_point now) {
  TREPAK_RETURN_IF_ERROR(Coordinator::Tick(now));
  if (!answered_.empty()) {
    TREPAK_RETURN_IF_ERROR(CheckThatAllAreHere());
  }
  const auto left =
      std::find_if(probed_.begin(), probed_.end(), [this](uint32_t rank) { return HasLeft(rank); });
  if (left != probed_.end()) {
    probed_.erase(left);
    return Probe();
  }
  return OkStatus();
}

}  // namespace trepak
