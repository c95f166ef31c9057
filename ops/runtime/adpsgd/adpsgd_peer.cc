#include "ops/runtime/adpsgd/adpsgd_peer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "ops/runtime/parameters/summation.h"

namespace trepak {

AdpsgdPeer::AdpsgdPeer(const Options& options, const Rules& rules,
                       std::shared_ptr<ErrorLatch> errors)
    : Endpoint(options, std::move(errors)),
      rules_(rules),
      random_(rules.seed + options.rank),
      values_(Payload::Allocate(bytes())),
      shown_(Payload::Allocate(bytes())),
      samples_(options.size, 0) {
  std::memset(values_.mutable_data(), 0, bytes());
  std::memset(shown_.mutable_data(), 0, bytes());
}

Status AdpsgdPeer::Check(const Payload& values) const {
  TREPAK_RETURN_IF_ERROR(error());
  if (values.size() != bytes()) {
    return InvalidArgumentError(Me() + " has " + std::to_string(values.size()) +
                                " bytes of parameters, not " + std::to_string(bytes()));
  }
  return OkStatus();
}

Status AdpsgdPeer::Assign(const Payload& values) {
  TREPAK_RETURN_IF_ERROR(Check(values));
  std::lock_guard<std::mutex> lock(mutex_);
  if (sent_.size() != 0) {
    return FailedPreconditionError(Me() + " sets its parameters while it averages them");
  }
  values_ = Payload::Copy(values.view());
  shown_ = Payload::Copy(values.view());
  return OkStatus();
}

Status AdpsgdPeer::Load(Payload* values) {
  TREPAK_RETURN_IF_ERROR(error());
  std::lock_guard<std::mutex> lock(mutex_);
  *values = Payload::Copy(values_.view());
  shown_ = Payload::Copy(values_.view());  // not the same memory: it is the caller's
  return OkStatus();
}

Status AdpsgdPeer::Show(const Payload& values) {
  TREPAK_RETURN_IF_ERROR(Check(values));
  std::lock_guard<std::mutex> lock(mutex_);
  shown_ = Payload::Copy(values.view());
  return OkStatus();
}

Status AdpsgdPeer::Add(const Payload& values, uint64_t samples) {
  TREPAK_RETURN_IF_ERROR(Check(values));
  std::lock_guard<std::mutex> lock(mutex_);
  Take(values);
  samples_[options().rank] += samples;
  ++counters_.steps;
  return is_active() && sent_.size() == 0 ? Begin() : OkStatus();
}

Status AdpsgdPeer::Bring(const Payload& values) {
  TREPAK_RETURN_IF_ERROR(Check(values));
  std::lock_guard<std::mutex> lock(mutex_);
  Take(values);
  return OkStatus();
}

void AdpsgdPeer::Take(const Payload& values) {
  Payload change = Payload::Copy(values.view());
  Accumulate(rules_.type, bytes(), -1.0, shown_.data(), change.mutable_data());
  Accumulate(rules_.type, bytes(), 1.0, change.data(), values_.mutable_data());
  shown_ = Payload::Copy(values.view());
}

Status AdpsgdPeer::Begin() {
  std::uniform_int_distribution<uint32_t> draw(0, options().size / 2 - 1);
  asked_ = 2 * draw(random_) + 1;
  asked_at_ = Clock::now();
  Message message;
  message.header.kind = adpsgd::kAverage;
  message.payload = Packed(head() + bytes());
  sent_ = message.payload.Part(head(), bytes());
  return Send(asked_, {}, std::move(message));
}

Payload AdpsgdPeer::Packed(size_t size) const {
  Payload packed = Payload::Allocate(size);
  char* const at = static_cast<char*>(packed.mutable_data());
  std::memcpy(at, samples_.data(), head());
  std::memcpy(at + head(), values_.data(), size - head());
  return packed;
}

void AdpsgdPeer::Hear(const Payload& packed) {
  for (size_t rank = 0; rank < samples_.size(); ++rank) {
    uint64_t theirs = 0;
    std::memcpy(&theirs, static_cast<const char*>(packed.data()) + rank * sizeof(theirs),
                sizeof(theirs));
    samples_[rank] = std::max(samples_[rank], theirs);
  }
}

void AdpsgdPeer::TakeMean(const Payload& theirs, const Payload& mine) {
  // values += (theirs - mine) / 2; mine may be what the values were before.
  Payload half = Payload::Allocate(bytes());
  Scale(rules_.type, bytes(), 0.5, theirs.data(), half.mutable_data());
  Accumulate(rules_.type, bytes(), -0.5, mine.data(), half.mutable_data());
  Accumulate(rules_.type, bytes(), 1.0, half.data(), values_.mutable_data());
  ++counters_.averagings;
}

Status AdpsgdPeer::Handle(Message message) {
  const Header& header = message.header;
  const size_t expected = header.kind == adpsgd::kCounted ? head() : head() + bytes();
  if (message.payload.size() != expected) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) + " averages " +
                                std::to_string(message.payload.size()) + " bytes, this rank " +
                                std::to_string(expected) + ": build the same model on every rank");
  }
  std::vector<Callback> settled;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Hear(message.payload);
    if (header.kind == adpsgd::kCounted) {
      return OkStatus();
    }
    const Payload theirs = message.payload.Part(head(), bytes());
    if (header.kind == adpsgd::kAverage && !is_active()) {
      Message answer;
      answer.header.kind = adpsgd::kAveraged;
      answer.payload = Packed(head() + bytes());
      const Payload mine = answer.payload.Part(head(), bytes());
      TakeMean(theirs, mine);
      return Send(header.sender, {}, std::move(answer));
    }
    if (header.kind != adpsgd::kAveraged || sent_.size() == 0 || header.sender != asked_) {
      return Unexpected(header, "AD-PSGD");
    }
    TakeMean(theirs, sent_);
    sent_ = Payload();
    settled.swap(settling_);
  }
  for (const Callback& callback : settled) {
    callback(OkStatus());
  }
  return OkStatus();
}

void AdpsgdPeer::Settle(Callback callback) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Message counted;
    counted.header.kind = adpsgd::kCounted;
    counted.payload = Packed(head());
    Broadcast(counted);
    status = error();
    if (status.ok() && sent_.size() != 0) {
      settling_.push_back(std::move(callback));
      return;
    }
  }
  callback(status);
}

Status AdpsgdPeer::Tick(Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (sent_.size() == 0 || now - asked_at_ < options().deadline) {
    return OkStatus();
  }
  return DeadlineExceededError("it waited " + std::to_string(options().deadline.count() / 1000) +
                               " s for rank " + std::to_string(asked_) + " to average parameters");
}

void AdpsgdPeer::Failed(const Status& status) {
  std::vector<Callback> settling;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    settling.swap(settling_);
  }
  for (const Callback& callback : settling) {
    callback(status);
  }
}

uint64_t AdpsgdPeer::TakeSamples() {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t before = taken_;
  taken_ = std::accumulate(samples_.begin(), samples_.end(), uint64_t{0});
  return taken_ - before;
}

AdpsgdPeer::Counters AdpsgdPeer::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace trepak
