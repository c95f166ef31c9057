#include "ops/runtime/sven/alltoall_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/runtime/sven/alltoall_messages.h"

namespace trepak {
namespace {

// Of a credit: what is taken is reported when it comes to this part, or sooner if a peer waits.
constexpr size_t kReportedPart = 4;

uint32_t HashOf(const std::string& name) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  }
  return hash;
}

double SecondsSince(Endpoint::Clock::time_point then) {
  return std::chrono::duration<double>(Endpoint::Clock::now() - then).count();
}

}  // namespace

AlltoallPeer::AlltoallPeer(const Options& options, size_t credit,
                           std::shared_ptr<ErrorLatch> errors, Timeline* timeline)
    : Endpoint(options, std::move(errors)),
      credit_(credit),
      peers_(options.size, Peer(credit)),
      inbox_(options.rank, options.size),
      spans_(timeline) {
  counters_.last.resize(options.size);
}

Status AlltoallPeer::KeyOf(const std::string& name, uint32_t* key) {
  *key = HashOf(name);
  const auto added = names_.try_emplace(*key, name);
  if (added.first->second != name) {
    return InvalidArgumentError("the alltoalls \"" + name + "\" and \"" + added.first->second +
                                "\" have the same key: rename one");
  }
  return OkStatus();
}

Status AlltoallPeer::Scatter(const std::string& name, const AlltoallRows& rows,
                             std::vector<Payload> splits, AlltoallInbox::Id* id) {
  TREPAK_RETURN_IF_ERROR(error());
  if (splits.size() != options().size) {
    return InvalidArgumentError(Me() + " gives an alltoall " + std::to_string(splits.size()) +
                                " splits for " + std::to_string(options().size) + " ranks");
  }
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TREPAK_RETURN_IF_ERROR(KeyOf(name, &id->first));
    id->second = next_[id->first]++;
    status = ScatterAs(*id, rows, std::move(splits));
  }
  if (!status.ok()) {
    Fail(status);  // the others wait for splits that will not come
  }
  return status;
}

Status AlltoallPeer::ScatterAs(const AlltoallInbox::Id& id, const AlltoallRows& rows,
                               std::vector<Payload> splits) {
  const uint32_t me = options().rank;
  const uint32_t size = options().size;
  TREPAK_RETURN_IF_ERROR(inbox_.Put(me, id, rows, std::move(splits[me])));
  spans_.Begin(id);
  for (uint32_t i = 1; i < size; ++i) {
    const uint32_t rank = (me + i) % size;
    Message split;
    split.header.kind = alltoall::kSplit;
    split.header.type = rows.type;
    split.header.key = id.first;
    split.header.round = id.second;
    split.header.slice = rows.row_elements;
    split.payload = std::move(splits[rank]);
    peers_[rank].outbox.Add(std::move(split));
    TREPAK_RETURN_IF_ERROR(SendTo(rank));
  }
  return OkStatus();
}

Status AlltoallPeer::SendTo(uint32_t rank) {
  Peer& peer = peers_[rank];
  for (Message& split : peer.outbox.Admit()) {
    counters_.bytes_sent += split.payload.size();
    if (GoesBesideFlow(rank, 0)) {
      counters_.bytes_beside += split.payload.size();
    }
    peer.was_told = false;
    TREPAK_RETURN_IF_ERROR(Send(rank, {}, std::move(split)));
  }
  if (peer.outbox.is_waiting() && !peer.was_told) {
    peer.was_told = true;
    ++counters_.held_up;
    Message waiting;
    waiting.header.kind = alltoall::kWaiting;
    return Send(rank, {}, std::move(waiting));
  }
  return OkStatus();
}

void AlltoallPeer::Gather(const AlltoallInbox::Id& id, Callback callback) {
  Over over;
  Status status = error();
  if (status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    AlltoallExchange& exchange = inbox_.At(id);
    exchange.callback = std::move(callback);
    exchange.since = Clock::now();
    status = End(id, &over);
    for (uint32_t rank = 0; rank < options().size && status.ok(); ++rank) {
      status = peers_[rank].waits ? Want(rank, id) : OkStatus();
    }
    callback = nullptr;
  }
  if (callback) {
    callback(status, {});
    return;
  }
  if (!status.ok()) {
    Fail(status);
  }
  if (over.callback) {
    over.callback(OkStatus(), std::move(over.splits));
  }
  if (!error().ok()) {  // it may have failed before this exchange was there to hear of it
    Failed(error());
  }
}

void AlltoallPeer::Discard(const AlltoallInbox::Id& id) {
  Over over;
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    inbox_.At(id).is_discarded = true;
    status = End(id, &over);
  }
  if (!status.ok()) {
    Fail(status);
  }
}

Status AlltoallPeer::End(const AlltoallInbox::Id& id, Over* over) {
  const auto found = inbox_.exchanges().find(id);
  if (found == inbox_.exchanges().end() || !found->second.is_over()) {
    return OkStatus();
  }
  AlltoallExchange exchange = inbox_.Remove(id);
  spans_.End(id, names_.at(id.first), exchange);
  ++counters_.exchanges;
  over->callback = std::move(exchange.callback);
  if (over->callback) {
    counters_.waiting_seconds += SecondsSince(exchange.since);
    for (std::optional<Payload>& split : exchange.splits) {
      over->splits.push_back(*std::move(split));
    }
  }
  for (uint32_t rank = 0; rank < options().size; ++rank) {
    if (rank != options().rank) {
      TREPAK_RETURN_IF_ERROR(Report(rank));
    }
  }
  return OkStatus();
}

Status AlltoallPeer::Report(uint32_t rank) {
  const std::vector<alltoall::Iterations> taken =
      inbox_.Report(rank, peers_[rank].waits ? 0 : std::max<size_t>(1, credit_ / kReportedPart));
  if (taken.empty()) {
    return OkStatus();
  }
  Message report;
  report.header.kind = alltoall::kTaken;
  report.payload = Payload::Copy(taken.data(), taken.size() * sizeof(taken[0]));
  return Send(rank, {}, std::move(report));
}

// Tells a rank whose splits wait for this one that it waits for one of them.
Status AlltoallPeer::Want(uint32_t rank, const AlltoallInbox::Id& id) {
  const auto found = inbox_.exchanges().find(id);
  const bool is_missing = found != inbox_.exchanges().end() && found->second.callback &&
                          !found->second.splits[rank].has_value();
  return is_missing
             ? Send(rank, {},
                    MessageOf(alltoall::kWanted, alltoall::Iterations{id.first, id.second + 1}))
             : OkStatus();
}

Status AlltoallPeer::TakeReport(const Message& message) {
  alltoall::Iterations taken;
  const size_t bytes = message.payload.size();
  if (bytes % sizeof(taken) != 0) {
    return Unexpected(message.header, "an alltoall");
  }
  const uint32_t from = message.header.sender;
  for (size_t at = 0; at < bytes; at += sizeof(taken)) {
    std::memcpy(&taken, static_cast<const char*>(message.payload.data()) + at, sizeof(taken));
    TREPAK_RETURN_IF_ERROR(peers_[from]
                               .outbox.Take(static_cast<uint32_t>(taken.key), taken.number)
                               .Annotate("rank " + std::to_string(from)));
  }
  return SendTo(from);
}

Status AlltoallPeer::Handle(Message message) {
  const Header header = message.header;
  Over over;
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const AlltoallInbox::Id id(header.key, header.round);
    switch (header.kind) {
      case alltoall::kSplit:
        peers_[header.sender].waits = false;  // no more: it says so again if it does
        TREPAK_RETURN_IF_ERROR(
            inbox_.Put(header.sender, id, {header.type, header.slice}, std::move(message.payload)));
        if (inbox_.At(id).missing == 0) {
          ++counters_.last[header.sender];
        }
        status = End(id, &over);
        break;
      case alltoall::kTaken:
        return TakeReport(message);
      case alltoall::kWaiting:
        peers_[header.sender].waits = true;
        for (const auto& [awaited, exchange] : inbox_.exchanges()) {
          TREPAK_RETURN_IF_ERROR(Want(header.sender, awaited));
        }
        return Report(header.sender);
      case alltoall::kWanted: {
        alltoall::Iterations wanted;
        TREPAK_RETURN_IF_ERROR(ReadBody(message, &wanted));
        peers_[header.sender].outbox.Want(static_cast<uint32_t>(wanted.key), wanted.number);
        return SendTo(header.sender);
      }
      default:
        return Unexpected(header, "an alltoall");
    }
  }
  if (over.callback) {
    over.callback(OkStatus(), std::move(over.splits));
  }
  return status;
}

Status AlltoallPeer::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, exchange] : inbox_.exchanges()) {
    if (!exchange.callback) {
      continue;
    }
    if (now - exchange.since >= options().deadline) {
      return TooLate(id, exchange);
    }
    for (uint32_t rank = 0; rank < options().size; ++rank) {
      if (!exchange.splits[rank].has_value() && HasLeft(rank)) {
        return LeftWhileOthersGoOn(rank);
      }
    }
  }
  return OkStatus();
}

Status AlltoallPeer::TooLate(const AlltoallInbox::Id& id, const AlltoallExchange& exchange) const {
  std::string ranks;
  for (uint32_t rank = 0; rank < options().size; ++rank) {
    if (!exchange.splits[rank].has_value()) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  const auto name = names_.find(id.first);
  return DeadlineExceededError("it waited " + std::to_string(options().deadline.count() / 1000) +
                               " s for the splits of ranks " + ranks + " in the alltoall \"" +
                               (name == names_.end() ? "" : name->second) + "\", number " +
                               std::to_string(id.second) +
                               ": do all ranks call it as often, also where they evaluate?");
}

void AlltoallPeer::Failed(const Status& status) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, exchange] : inbox_.exchanges()) {
      if (exchange.callback) {
        callbacks.push_back(exchange.callback);
        inbox_.At(id).callback = nullptr;
      }
    }
  }
  for (const Callback& callback : callbacks) {
    callback(status, {});
  }
}

void AlltoallPeer::Leave() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t rank = 0; rank < options().size; ++rank) {
      peers_[rank].outbox.WaiveCredit();
      if (!SendTo(rank).ok()) {
        break;  // that flow has failed, which its own error tells
      }
    }
  }
  Endpoint::Leave();
}

AlltoallPeer::Counters AlltoallPeer::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Counters counters = counters_;
  counters.most_held = inbox_.most_held();
  return counters;
}

AlltoallTicket::~AlltoallTicket() {
  if (!was_used_) {
    peer_->Discard(id_);
  }
}

void AlltoallTicket::Gather(AlltoallPeer::Callback callback) {
  if (was_used_.exchange(true)) {
    callback(FailedPreconditionError("an alltoall was waited for twice"), {});
    return;
  }
  peer_->Gather(id_, std::move(callback));
}

}  // namespace trepak
