#include "ops/runtime/rna/rna_contributions.h"

#include <cstring>
#include <utility>

#include "ops/runtime/parameters/summation.h"

namespace trepak {

void Contribution::CombineInto(ElementType type, size_t bytes, void* gradient) {
  if (parts.empty()) {
    std::memset(gradient, 0, bytes);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const void* const part = parts[i].gradients.data();
    if (i == 0) {
      Scale(type, bytes, parts[i].factor, part, gradient);
    } else {
      Accumulate(type, bytes, parts[i].factor, part, gradient);
    }
  }
  parts.clear();
}

void RnaContributions::Add(Gradient gradient) {
  samples_ += gradient.samples;
  if (gradient.values.size() == 0) {
    was_not_finite_ = true;
    ++not_finite_;
    return;
  }
  rate_ = gradient.rate;
  Sum& sum = sums_[gradient.version];
  if (sum.count++ == 0) {
    sum.gradients = std::move(gradient.values);
  } else {
    Accumulate(type_, bytes_, 1.0, gradient.values.data(), sum.gradients.mutable_data());
  }
}

void RnaContributions::Expire(uint64_t version) {
  while (!sums_.empty() && sums_.begin()->first + staleness_ < version) {
    dropped_ += sums_.begin()->second.count;
    sums_.erase(sums_.begin());
  }
}

Contribution RnaContributions::Take(uint64_t version) {
  Expire(version);
  Contribution taken;
  taken.samples = std::exchange(samples_, 0);
  was_not_finite_ = false;
  if (sums_.empty()) {
    return taken;
  }
  const uint64_t oldest = sums_.begin()->first;
  taken.staleness = version - oldest;
  taken.rate = rate_;
  // [t - (k - tau) + 1] in the thesis: k - tau is the oldest version t among them.
  const auto weight_of = [&](uint64_t newer) {
    return combine_ == Combine::kSum ? 1.0 : static_cast<double>(newer - oldest + 1);
  };
  double total = 0.0;
  for (const auto& [of, sum] : sums_) {
    taken.gradients += sum.count;
    total += weight_of(of) * sum.count;
  }
  if (combine_ == Combine::kSum) {
    total = 1.0;
  }
  for (auto& [of, sum] : sums_) {
    taken.parts.push_back({std::move(sum.gradients), weight_of(of) / total});
  }
  sums_.clear();
  return taken;
}

}  // namespace trepak
