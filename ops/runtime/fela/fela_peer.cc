#include "ops/runtime/fela/fela_peer.h"

#include <algorithm>

namespace trepak {

Status FelaPeer::Put(const FelaChunkName& name, FelaTensors tensors) {
  TREPAK_RETURN_IF_ERROR(error());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TREPAK_RETURN_IF_ERROR(chunks_.Put(name, std::move(tensors)).Annotate(Me()));
  }
  Settle();  // another rank may have been asked for it as well
  return OkStatus();
}

// Under the lock, which orders it before this rank's farewell; a flow takes messages without
// waiting.
Status FelaPeer::SendTo(const FelaChunkName& name, uint32_t rank) {
  TREPAK_RETURN_IF_ERROR(error());
  std::lock_guard<std::mutex> lock(mutex_);
  const FelaTensors* const tensors = chunks_.Find(name);
  const std::string order =
      Me() + " is to send " + name.ToString() + " to rank " + std::to_string(rank);
  if (has_left_ || rank >= options().size) {
    return InvalidArgumentError(order + (has_left_ ? ", but has ended its training"
                                                   : " of " + std::to_string(options().size)));
  }
  if (tensors == nullptr) {
    return InvalidArgumentError(order + (name.iteration < chunks_.first()
                                             ? ", but has dropped it: that iteration is over"
                                             : ", but does not have it: put what a token has made "
                                               "before it is reported"));
  }
  if (rank == options().rank || !chunks_.NoteSent(name, rank)) {
    return OkStatus();
  }
  ++counters_.chunks_sent;
  for (size_t i = 0; i < tensors->size(); ++i) {
    const Payload& tensor = (*tensors)[i];
    counters_.bytes_sent += tensor.size();
    counters_.bytes_beside += GoesBesideFlow(rank, 0) ? tensor.size() : 0;
    TREPAK_RETURN_IF_ERROR(Send(rank, {}, MessageOfPart({name, i, tensors->size()}, tensor)));
  }
  return OkStatus();
}

void FelaPeer::Take(std::vector<Wanted> wanted, Callback callback, uint64_t number) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    status = error();  // under the lock: or one could come before there is whom to tell
    if (status.ok()) {
      status = CheckWanted(wanted);
    }
    if (status.ok()) {
      counters_.chunks_local +=
          static_cast<uint64_t>(std::count_if(wanted.begin(), wanted.end(), [&](const Wanted& one) {
            return one.holder == options().rank;
          }));
      const Clock::time_point now = Clock::now();
      takings_.push_back({number, std::move(wanted), std::move(callback), now, now});
      callback = nullptr;
    }
  }
  if (callback) {
    callback(status, {});
    return;
  }
  Settle();
}

void FelaPeer::CancelTake(uint64_t number) {
  Over over;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto taking = std::find_if(takings_.begin(), takings_.end(),
                                     [&](const Taking& one) { return one.number == number; });
    if (taking == takings_.end()) {
      return;
    }
    over = End(*taking, CancelledError("nobody wants the chunks any more"));
    takings_.erase(taking);
  }
  over.callback(over.status, {});
}

Status FelaPeer::CheckWanted(const std::vector<Wanted>& wanted) const {
  for (const Wanted& one : wanted) {
    const std::string what = Me() + " takes " + one.name.ToString();
    TREPAK_RETURN_IF_ERROR(chunks_.CheckKept(one.name).Annotate(Me()));
    if (one.holder >= options().size) {
      return FailedPreconditionError(what + " of rank " + std::to_string(one.holder) + " of " +
                                     std::to_string(options().size));
    }
    if (one.holder == options().rank && chunks_.Find(one.name) == nullptr) {
      return FailedPreconditionError(what + " of itself, but has not put it");
    }
  }
  return OkStatus();
}

const FelaPeer::Wanted* FelaPeer::MissingOf(const Taking& taking) const {
  const auto missing =
      std::find_if(taking.wanted.begin(), taking.wanted.end(),
                   [&](const Wanted& one) { return chunks_.Find(one.name) == nullptr; });
  return missing == taking.wanted.end() ? nullptr : &*missing;
}

FelaPeer::Over FelaPeer::End(const Taking& taking, Status status) {
  counters_.waiting_seconds += std::chrono::duration<double>(Clock::now() - taking.since).count();
  Over over{taking.callback, std::move(status), {}};
  for (const Wanted& one : taking.wanted) {
    if (over.status.ok()) {
      over.chunks.push_back(*chunks_.Find(one.name));
    }
  }
  return over;
}

void FelaPeer::Settle() {
  std::vector<Over> over;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto taking = takings_.begin(); taking != takings_.end();) {
      const Wanted* const missing = MissingOf(*taking);
      const Status status = missing == nullptr ? OkStatus() : chunks_.CheckKept(missing->name);
      if (missing != nullptr && status.ok()) {
        ++taking;
        continue;
      }
      over.push_back(End(*taking, status));
      taking = takings_.erase(taking);
    }
  }
  for (Over& one : over) {
    one.callback(one.status.Annotate(Me()), std::move(one.chunks));
  }
}

void FelaPeer::DropBefore(uint64_t iteration) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    chunks_.DropBefore(iteration);
  }
  Settle();
}

Status FelaPeer::Handle(Message message) {
  const Header header = message.header;
  if (header.kind != fela::kChunk) {
    return Unexpected(header, "a peer of Fela's workers");
  }
  FelaChunkPart part;
  TREPAK_RETURN_IF_ERROR(ReadPart(header, &part));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    counters_.bytes_received += message.payload.size();
    bool is_here = false;
    TREPAK_RETURN_IF_ERROR(
        chunks_.Receive(header.sender, part, std::move(message.payload), &is_here));
    counters_.chunks_received += is_here ? 1 : 0;
    for (Taking& taking : takings_) {
      const bool waits = std::any_of(taking.wanted.begin(), taking.wanted.end(),
                                     [&](const Wanted& one) { return one.name == part.name; });
      taking.heard = waits ? Clock::now() : taking.heard;
    }
  }
  Settle();
  return OkStatus();
}

Status FelaPeer::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Taking& taking : takings_) {
    for (const Wanted& one : taking.wanted) {
      if (chunks_.Find(one.name) != nullptr) {
        continue;
      }
      if (HasLeft(one.holder)) {
        return LeftWhileOthersGoOn(one.holder).Annotate("it waits for " + one.name.ToString());
      }
      if (now - taking.heard >= options().deadline) {
        return DeadlineExceededError(
            "it waited " + std::to_string(options().deadline.count() / 1000) + " s for rank " +
            std::to_string(one.holder) + " to send " + one.name.ToString() +
            ": see whether that rank stands still; where links are slow, raise " +
            "TREPAK_DEADLINE_SECONDS");
      }
    }
  }
  return OkStatus();
}

void FelaPeer::Failed(const Status& status) {
  std::vector<Over> over;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Taking& taking : takings_) {
      over.push_back(End(taking, status));
    }
    takings_.clear();
  }
  for (const Over& one : over) {
    one.callback(one.status, {});
  }
}

void FelaPeer::Leave() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    has_left_ = true;
  }
  Endpoint::Leave();
}

FelaPeer::Counters FelaPeer::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Counters counters = counters_;
  counters.bytes_held = chunks_.bytes();
  counters.most_bytes_held = chunks_.most_bytes();
  return counters;
}

}  // namespace trepak
