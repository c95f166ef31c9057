#include "ops/runtime/fela/fela_chunks.h"

#include <algorithm>
#include <string>

namespace trepak {

bool ParameterChunks::IsAhead(const FelaChunkName& name) const {
  return name.iteration >= first_ && name.iteration - first_ >= iterations_;
}

std::string ParameterChunks::TooFarAhead(const FelaChunkName& name) const {
  return name.ToString() + " can't be kept yet: this rank keeps chunks of " +
         std::to_string(iterations_) + " iterations, from " + std::to_string(first_) +
         " on. Let all ranks drop the chunks of an iteration when it is over";
}

Status ParameterChunks::CheckKept(const FelaChunkName& name) const {
  if (name.iteration < first_) {
    return FailedPreconditionError(name.ToString() + " can't be had any more: this rank keeps " +
                                   "chunks from iteration " + std::to_string(first_) + " on");
  }
  return IsAhead(name) ? FailedPreconditionError(TooFarAhead(name)) : OkStatus();
}

Status ParameterChunks::Put(const FelaChunkName& name, FelaTensors tensors) {
  if (tensors.empty() || tensors.size() > kMostFelaTensors) {
    return FailedPreconditionError(name.ToString() + " is of " + std::to_string(tensors.size()) +
                                   " tensors, not of 1 to " + std::to_string(kMostFelaTensors));
  }
  if (name.iteration < first_) {
    return OkStatus();  // somebody else was quicker
  }
  TREPAK_RETURN_IF_ERROR(CheckKept(name));
  const auto found = chunks_.find(name);
  if (found == chunks_.end()) {
    Count(tensors);
    Keep(name, {std::move(tensors), true, 0, {}});
    return OkStatus();
  }
  if (found->second.is_made_here) {
    return FailedPreconditionError("this rank makes " + name.ToString() +
                                   " twice: complete each token once");
  }
  found->second.is_made_here = true;
  return OkStatus();
}

Status ParameterChunks::Receive(uint32_t sender, const FelaChunkPart& part, Payload tensor,
                                bool* is_here) {
  *is_here = false;
  const std::string who = "rank " + std::to_string(sender);
  if (IsAhead(part.name)) {
    return InvalidArgumentError(who + ": " + TooFarAhead(part.name));
  }
  if (part.name.iteration < first_) {
    return OkStatus();
  }
  const auto found = chunks_.find(part.name);
  if (found != chunks_.end()) {
    return found->second.is_made_here || found->second.from != sender
               ? OkStatus()
               : InvalidArgumentError(who + " sent " + part.name.ToString() + " twice");
  }
  const auto [place, is_first] = arrivals_.try_emplace({part.name, sender});
  Arriving& arriving = place->second;
  arriving.count = is_first ? part.count : arriving.count;
  if (part.index != arriving.tensors.size() || part.count != arriving.count) {
    return InvalidArgumentError(who + " sent tensor " + std::to_string(part.index) + " of " +
                                std::to_string(part.count) + " of " + part.name.ToString() +
                                ", where tensor " + std::to_string(arriving.tensors.size()) +
                                " of " + std::to_string(arriving.count) + " was due");
  }
  arriving.tensors.push_back(std::move(tensor));
  Count({arriving.tensors.back()});
  if (arriving.tensors.size() == arriving.count) {
    Keep(part.name, {std::move(arriving.tensors), false, sender, {}});
    *is_here = true;
  }
  return OkStatus();
}

// What others have sent a part of is not needed any more.
void ParameterChunks::Keep(const FelaChunkName& name, Chunk chunk) {
  chunks_[name] = std::move(chunk);
  DropArrivals(arrivals_.lower_bound({name, 0}), arrivals_.upper_bound({name, UINT32_MAX}));
}

const FelaTensors* ParameterChunks::Find(const FelaChunkName& name) const {
  const auto found = chunks_.find(name);
  return found == chunks_.end() ? nullptr : &found->second.tensors;
}

bool ParameterChunks::NoteSent(const FelaChunkName& name, uint32_t rank) {
  return chunks_.at(name).sent_to.insert(rank).second;
}

void ParameterChunks::DropBefore(uint64_t iteration) {
  first_ = std::max(first_, iteration);
  const FelaChunkName end{first_, 0, FelaChunkKind::kSamples};
  const auto behind = chunks_.lower_bound(end);
  for (auto one = chunks_.begin(); one != behind; ++one) {
    Discount(one->second.tensors);
  }
  chunks_.erase(chunks_.begin(), behind);
  DropArrivals(arrivals_.begin(), arrivals_.lower_bound({end, 0}));
}

void ParameterChunks::DropArrivals(Arrivals::iterator begin, Arrivals::iterator end) {
  for (auto one = begin; one != end; ++one) {
    Discount(one->second.tensors);
  }
  arrivals_.erase(begin, end);
}

void ParameterChunks::Count(const FelaTensors& tensors) {
  for (const Payload& tensor : tensors) {
    bytes_ += tensor.size();
  }
  most_bytes_ = std::max(most_bytes_, bytes_);
}

void ParameterChunks::Discount(const FelaTensors& tensors) {
  for (const Payload& tensor : tensors) {
    bytes_ -= tensor.size();
  }
}

}  // namespace trepak
