#include "horovod_ext/runtime/rna_contributions.h"

#include <cstring>
#include <utility>

#include "horovod_ext/runtime/summation.h"

namespace trepak {

void RnaContributions::Add(uint64_t version, uint64_t samples, Payload gradient) {
  samples_ += samples;
  Sum& sum = sums_[version];
  if (sum.count++ == 0) {
    sum.gradients = std::move(gradient);
  } else {
    Accumulate(type_, bytes_, 1.0, gradient.data(), sum.gradients.mutable_data());
  }
}

void RnaContributions::Expire(uint64_t round) {
  while (!sums_.empty() && sums_.begin()->first + staleness_ < round) {
    dropped_ += sums_.begin()->second.count;
    sums_.erase(sums_.begin());
  }
}

Contribution RnaContributions::Take(uint64_t round, void* gradient) {
  Expire(round);
  Contribution taken;
  taken.samples = std::exchange(samples_, 0);
  if (sums_.empty()) {
    std::memset(gradient, 0, bytes_);
    return taken;
  }
  const uint64_t oldest = sums_.begin()->first;
  taken.staleness = round - oldest;
  // [t - (k - tau) + 1] in the thesis: k - tau is the oldest version t among them.
  const auto weight_of = [&](uint64_t version) {
    return combine_ == Combine::kSum ? 1.0 : static_cast<double>(version - oldest + 1);
  };
  double total = 0.0;
  for (const auto& [version, sum] : sums_) {
    taken.gradients += sum.count;
    total += weight_of(version) * sum.count;
  }
  if (combine_ == Combine::kSum) {
    total = 1.0;
  }
  bool first = true;
  for (const auto& [version, sum] : sums_) {
    const double factor = weight_of(version) / total;
    if (std::exchange(first, false)) {
      Scale(type_, bytes_, factor, sum.gradients.data(), gradient);
    } else {
      Accumulate(type_, bytes_, factor, sum.gradients.data(), gradient);
    }
  }
  sums_.clear();
  return taken;
}

}  // namespace trepak
