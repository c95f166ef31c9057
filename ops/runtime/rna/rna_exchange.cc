#include "ops/runtime/rna/rna_exchange.h"

#include <utility>

#include "ops/runtime/parameters/summation.h"

namespace trepak {

RnaExchange::RnaExchange(const RnaRules& rules, std::string me,
                         std::shared_ptr<GlobalParameters> global)
    : rules_(rules),
      me_(std::move(me)),
      global_(std::move(global)),
      adopted_(rules.type, rules.bytes()) {}

void RnaExchange::Begin(const Payload& values, uint64_t total) {
  std::lock_guard<std::mutex> lock(mutex_);
  others_ += Others(total);
  Adopt(values, total);
}

void RnaExchange::Adopt(const Payload& values, uint64_t total) {
  adopted_.Adopt(values);
  total_ = total;
  samples_ = 0;
}

void RnaExchange::Apply(const RnaRound& round) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (round.is_exchange) {
    Adopt(round.sum, total_ + samples_ + round.samples);
  } else {
    samples_ += round.samples;
  }
}

Status RnaExchange::Check(const Payload& values) const {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (values.size() != rules_.bytes() || !adopted_.any()) {
      return FailedPreconditionError(me_ + " exchanges " + std::to_string(values.size()) +
                                     " bytes of parameters, not " + std::to_string(rules_.bytes()) +
                                     ", or before it has fetched any");
    }
  }
  if (!AllFinite(rules_.type, values.size(), values.data())) {
    return InvalidArgumentError(me_ + "'s parameters are not finite any more: lower the learning " +
                                "rate, or clip gradients");
  }
  return OkStatus();
}

void RnaExchange::Change(const Payload& values, Callback callback) {
  Payload change;
  uint64_t samples = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    change = adopted_.Change(values);
    samples = samples_;
  }
  global_->Change(std::move(change), rules_.exchange.ranks, samples, std::move(callback));
}

}  // namespace trepak
