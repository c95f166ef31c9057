#include "ops/runtime/fela/fela_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace trepak {
namespace {

constexpr uint64_t kMostTokens = uint64_t{1} << 24;  // of an iteration: numbers stay small
constexpr uint32_t kMostStaleness = 64;              // each more iteration has weights of its own

uint64_t DividedUp(uint64_t number, uint64_t by) { return (number + by - 1) / by; }

uint64_t SamplesOf(const FelaRules& rules) {
  return std::accumulate(rules.batches.begin(), rules.batches.end(), uint64_t{0});
}

// Equation 2's n_1: so many that each is at most the threshold, and each worker has one.
uint64_t AimedAt(const FelaRules& rules) {
  return std::max<uint64_t>(DividedUp(SamplesOf(rules), rules.threshold), rules.batches.size());
}

Status CheckWeights(const std::vector<uint32_t>& weights) {
  if (weights.empty() || weights.front() == 0) {
    return InvalidArgumentError("weights must begin with a number of 1 or more");
  }
  for (size_t i = 1; i < weights.size(); ++i) {
    if (weights[i] == 0 || weights[i] % weights[i - 1] != 0) {
      return InvalidArgumentError("each weight must be a multiple of the one before: weight " +
                                  std::to_string(i + 1) + " is " + std::to_string(weights[i]) +
                                  ", and the one before " + std::to_string(weights[i - 1]));
    }
  }
  return OkStatus();
}

Status CheckSubset(const std::vector<uint32_t>& subset, size_t workers) {
  if (!std::is_sorted(subset.begin(), subset.end()) ||
      std::adjacent_find(subset.begin(), subset.end()) != subset.end()) {
    return InvalidArgumentError("a subset must name its workers in their order, each once");
  }
  if (!subset.empty() && subset.back() >= workers) {
    return InvalidArgumentError("a subset names worker " + std::to_string(subset.back()) +
                                ", where there are " + std::to_string(workers));
  }
  return OkStatus();
}

}  // namespace

Status FelaPlan::Check(const FelaRules& rules) {
  if (rules.batches.empty() || SamplesOf(rules) == 0) {
    return InvalidArgumentError("the workers have no samples");
  }
  if (rules.threshold == 0) {
    return InvalidArgumentError("the threshold batch size must be at least 1");
  }
  if (SamplesOf(rules) > std::numeric_limits<uint32_t>::max() ||
      AimedAt(rules) * rules.weights.size() > kMostTokens) {
    return InvalidArgumentError(
        "an iteration has too many samples, or tokens: raise the threshold");
  }
  if (rules.staleness > kMostStaleness) {
    return InvalidArgumentError("the staleness is at most " + std::to_string(kMostStaleness) +
                                " iterations, not " + std::to_string(rules.staleness));
  }
  if (rules.staleness > 0 && rules.recompute) {
    return InvalidArgumentError(
        "with a staleness workers have weights of several iterations, so that none can make the "
        "activations of another anew: leave recompute off");
  }
  TREPAK_RETURN_IF_ERROR(CheckWeights(rules.weights));
  if (!rules.subsets.empty() && rules.subsets.size() != rules.weights.size()) {
    return InvalidArgumentError("there must be a subset of each sub-model, or none");
  }
  for (const std::vector<uint32_t>& subset : rules.subsets) {
    TREPAK_RETURN_IF_ERROR(CheckSubset(subset, rules.batches.size()));
  }
  return OkStatus();
}

FelaPlan::FelaPlan(FelaRules rules) : rules_(std::move(rules)) {
  uint32_t tokens = 0;
  uint32_t samples = 0;
  for (uint32_t worker = 0; worker < workers(); ++worker) {
    first_tokens_.push_back(tokens);
    first_samples_.push_back(samples);
    tokens += FirstTokens(worker, rules_.batches[worker]);
    samples += rules_.batches[worker];
  }
  offsets_.push_back(0);
  for (uint32_t stage = 1; stage <= submodels(); ++stage) {
    tokens_.push_back(tokens);
    offsets_.push_back(offsets_.back() + tokens);
    if (stage < submodels()) {
      tokens = static_cast<uint32_t>(DividedUp(tokens, GroupOf(stage)));
    }
  }
}

uint32_t FelaPlan::FirstTokens(uint32_t worker, uint32_t samples) const {
  const uint64_t share = DividedUp(AimedAt(rules_) * rules_.batches[worker], SamplesOf(rules_));
  return static_cast<uint32_t>(std::min<uint64_t>(share, samples));
}

FelaPlan::Part FelaPlan::PartOf(uint32_t worker, uint32_t samples, uint32_t i) const {
  const uint64_t count = FirstTokens(worker, samples);
  const auto first = static_cast<uint32_t>(uint64_t{samples} * i / count);
  const auto end = static_cast<uint32_t>(uint64_t{samples} * (i + 1) / count);
  return {first_tokens_[worker] + i, first_samples_[worker] + first, end - first};
}

uint32_t FelaPlan::StageOf(uint32_t token) const {
  if (token >= numbers()) {
    return 0;
  }
  const bool backward = token >= offsets_.back();
  const auto next =
      std::upper_bound(offsets_.begin(), offsets_.end(), backward ? ForwardOf(token) : token);
  const auto forward = static_cast<uint32_t>(next - offsets_.begin());
  // The last sub-model's go backward at once.
  return !backward ? forward : forward == submodels() ? 0 : 2 * submodels() - forward;
}

bool FelaPlan::MayTrain(uint32_t worker, uint32_t submodel) const {
  const std::vector<uint32_t>& subset = Subset(submodel);
  return subset.empty() || std::binary_search(subset.begin(), subset.end(), worker);
}

}  // namespace trepak
