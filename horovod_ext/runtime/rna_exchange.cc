#include "horovod_ext/runtime/rna_exchange.h"

#include <cstring>

#include "horovod_ext/runtime/summation.h"

namespace trepak {

void RnaExchange::Begin(const Payload& values, uint64_t samples) {
  base_ = Payload::Allocate(bytes_);
  std::memcpy(base_.mutable_data(), values.data(), bytes_);
  total_ = samples;
  samples_ = 0;
}

void RnaExchange::Apply(uint64_t round, uint64_t samples) {
  samples_ += samples;
  if (rules_.period != 0 && (round + 1) % rules_.period == 0) {
    locked_ = round;
  }
}

Payload RnaExchange::Change(const Payload& values) const {
  Payload change = Payload::Allocate(bytes_);
  // The difference first: it is small, and so is what rounding takes from it.
  std::memcpy(change.mutable_data(), values.data(), bytes_);
  Accumulate(type_, bytes_, -1.0, base_.data(), change.mutable_data());
  Scale(type_, bytes_, rules_.share, change.data(), change.mutable_data());
  return change;
}

RnaExchange::Outcome RnaExchange::Adopt() {
  const auto found = arrived_.find(*locked_);
  Outcome outcome = std::move(found->second);
  arrived_.erase(found);
  locked_.reset();
  Begin(outcome.values, total_ + samples_ + outcome.others);
  return outcome;
}

}  // namespace trepak
