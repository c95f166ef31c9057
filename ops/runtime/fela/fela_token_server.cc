#include "ops/runtime/fela/fela_token_server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ops/runtime/fela/fela_messages.h"

namespace trepak {
namespace {

using std::chrono::milliseconds;

constexpr int kTimesInADeadline = 4;  // that those who wait hear that this is here
// More than the deadline, for a token whose chunks others send: a worker that waits for them has
// that deadline itself, and knows who has not sent his.
constexpr milliseconds kGrace{2000};

Message Saying(MessageKind kind, uint64_t iteration, uint32_t key = 0) {
  Message message;
  message.header.kind = kind;
  message.header.round = iteration;
  message.header.key = key;
  return message;
}

}  // namespace

FelaScheduler::Counters FelaTokenServer::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return scheduler_.counters();
}

double FelaTokenServer::busy_seconds() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::chrono::duration<double>(busy_).count();
}

Status FelaTokenServer::Handle(Message message) {
  const Clock::time_point began = Clock::now();
  std::lock_guard<std::mutex> lock(mutex_);
  TREPAK_RETURN_IF_ERROR(BeginWhenConnected());
  const Status status = Answer(message);
  busy_ += Clock::now() - began;
  return status;
}

Status FelaTokenServer::Answer(const Message& message) {
  const Header& header = message.header;
  FelaScheduler::Orders orders;
  fela::Report report;
  const uint32_t worker = header.sender;
  heard_[worker] = Clock::now();
  switch (header.kind) {
    case fela::kBegin:
      if (!any_has_begun_) {
        any_has_begun_ = true;
        first_begun_ = Clock::now();
      }
      TREPAK_RETURN_IF_ERROR(scheduler_.Begin(worker, header.round, header.key, &orders));
      break;
    case fela::kRequest:
      TREPAK_RETURN_IF_ERROR(scheduler_.Request(worker, header.round, &orders, header.key != 0));
      break;
    case fela::kReport:
      TREPAK_RETURN_IF_ERROR(ReadBody(message, &report));
      TREPAK_RETURN_IF_ERROR(scheduler_.Report(worker, header.round, header.key, &orders));
      if (orders.reported) {
        losses_[header.round] += report.loss;
      }
      break;
    default:
      return Unexpected(header, name());
  }
  return Carry(header.round, orders);
}

Status FelaTokenServer::Carry(uint64_t iteration, const FelaScheduler::Orders& orders) {
  for (const FelaScheduler::Assignment& assignment : orders.assignments) {
    const uint32_t worker = assignment.worker;
    in_hand_[worker] = {Clock::now(), {}};
    for (const FelaScheduler::Input& input : assignment.inputs) {
      if (input.holder != worker) {
        in_hand_[worker].senders.insert(input.holder);
        Message send =
            MessageOf(fela::kSend, fela::Send{static_cast<uint32_t>(input.kind), worker});
        send.header.round = assignment.iteration;
        send.header.key = input.token;
        TREPAK_RETURN_IF_ERROR(Send(input.holder, {}, std::move(send)));
      }
    }
    Message token = fela::MessageOfAssignment(assignment);
    token.header.round = assignment.iteration;
    TREPAK_RETURN_IF_ERROR(Send(worker, {}, std::move(token)));
  }
  for (const uint32_t submodel : orders.trained) {
    Broadcast(Saying(fela::kTrained, iteration, submodel));
  }
  uint64_t ended = scheduler_.iteration() - orders.samples.size();
  for (const uint64_t samples : orders.samples) {
    Message over = MessageOf(fela::kOver, fela::Over{samples, losses_[ended]});
    over.header.round = ended;
    losses_.erase(ended++);
    Broadcast(over);
  }
  if (orders.over()) {
    any_has_begun_ = scheduler_.NotBegun().size() < options().size;
    first_begun_ = Clock::now();
    heard_.assign(heard_.size(), Clock::now());  // who has waited for the end was not away
  }
  for (const uint32_t worker : orders.ahead) {
    heard_[worker] = Clock::now();
    TREPAK_RETURN_IF_ERROR(Send(worker, {}, Saying(fela::kAhead, ended)));
  }
  return OkStatus();
}

Status FelaTokenServer::Tick(Clock::time_point now) {
  TREPAK_RETURN_IF_ERROR(Coordinator::Tick(now));
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_connected() && now - said_here_ >= options().deadline / kTimesInADeadline) {
    said_here_ = now;
    Broadcast(Saying(fela::kHere, scheduler_.iteration()));
  }
  if (!any_has_begun_ || scheduler_.Away().empty()) {
    nobody_away_ = now;
  }
  return any_has_begun_ ? CheckWaiting(now) : OkStatus();
}

Status FelaTokenServer::CheckWaiting(Clock::time_point now) const {
  TREPAK_RETURN_IF_ERROR(CheckThatAllAreHere());
  for (const auto& [worker, token] : scheduler_.InHand()) {
    const auto& [since, senders] = in_hand_[worker];
    if (now - since >= options().deadline + (senders.empty() ? milliseconds(0) : kGrace)) {
      const std::string reads =
          senders.empty() ? "" : ", which reads chunks of " + NamesOf(senders);
      return WaitedTooLong({worker}, "train token " + std::to_string(token) + reads);
    }
  }
  const std::vector<uint32_t> missing = scheduler_.NotBegun();
  if (!missing.empty() && now - first_begun_ >= options().deadline) {
    return WaitedTooLong(missing,
                         "begin the iteration that others have begun (ranks need equally many "
                         "batches: BroadcastGlobalVariablesCallback ends their epochs together)");
  }
  for (const uint32_t worker : scheduler_.Away()) {
    // A pause that all make at once has nobody wait.
    if (now - std::max(heard_[worker], nobody_away_) >= options().deadline) {
      return WaitedTooLong({worker}, "come back to the tokens that others wait for");
    }
  }
  return OkStatus();
}

}  // namespace trepak
