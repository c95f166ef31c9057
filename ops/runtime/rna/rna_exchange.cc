#include "ops/runtime/rna/rna_exchange.h"

namespace trepak {

void RnaExchange::Begin(const Payload& values, uint64_t samples) {
  adopted_.Adopt(values);
  total_ = samples;
  samples_ = 0;
}

void RnaExchange::Apply(uint64_t round, uint64_t samples) {
  samples_ += samples;
  if (rules_.period != 0 && (round + 1) % rules_.period == 0) {
    locked_ = round;
  }
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
