#include "ops/runtime/net/session.h"

namespace trepak {

Status Session::NotOpen() const {
  return NotFoundError(
      name_ + " does not run: Horovod was shut down, or no step of such an " +
      "optimizer has been taken yet. In the first case, compile with a new optimizer");
}

Status Session::Open(const JobOptions& job, Parts parts) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!parts_.empty()) {
    return FailedPreconditionError(name_ + " runs already");
  }
  for (const Part& part : parts) {
    if (part.peers >= parts.size()) {
      return InvalidArgumentError("a part of " + name_ + " has nobody to talk to");
    }
    if (part.endpoint != nullptr) {
      TREPAK_RETURN_IF_ERROR(Listen(job, part.carrier, part.endpoint.get()));
    }
  }
  size_ = job.size;
  parts_ = std::move(parts);
  return OkStatus();
}

Session::Addresses Session::addresses() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Addresses found;
  for (const Part& part : parts_) {
    found.push_back(part.endpoint == nullptr ? "" : part.endpoint->transport().address());
  }
  return found;
}

Status Session::Connect(const std::vector<Addresses>& addresses) {
  Parts parts;
  uint32_t size = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    parts = parts_;
    size = size_;
  }
  if (parts.empty()) {
    return NotOpen();
  }
  if (addresses.size() != parts.size()) {
    return InvalidArgumentError(name_ + " has " + std::to_string(parts.size()) + " parts, not " +
                                std::to_string(addresses.size()));
  }
  for (const Part& part : parts) {
    const Addresses& theirs = addresses[part.peers];
    if (part.endpoint == nullptr) {
      continue;
    }
    if (theirs.size() != size) {
      return InvalidArgumentError(name_ + " has " + std::to_string(size) + " ranks, not " +
                                  std::to_string(theirs.size()));
    }
    Addresses members(size);
    for (const uint32_t member : part.members) {
      members.at(member) = theirs[member];
    }
    TREPAK_RETURN_IF_ERROR(part.endpoint->Connect(members, part.dscp, part.send_buffer));
  }
  return OkStatus();
}

void Session::Close(std::chrono::milliseconds patience) {
  Parts parts;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    parts.swap(parts_);
  }
  std::vector<Endpoint*> endpoints;
  for (const Part& part : parts) {
    endpoints.push_back(part.endpoint.get());
  }
  LeaveTogether(endpoints, patience);
  for (Endpoint* const endpoint : endpoints) {
    if (endpoint != nullptr) {
      endpoint->Cancel(CancelledError(name_ + " was stopped"));
      endpoint->Shutdown();  // not in its own thread, which may hold it for a moment longer
    }
  }
}

}  // namespace trepak
