#include "ops/runtime/fela/fela_bucket.h"

#include <algorithm>

namespace trepak {
namespace {

// Who has the activations goes backward through them in about two thirds of the time in which
// another makes them anew and goes backward: that helps where at least two wait for it.
constexpr uint32_t kWaitingForRecomputing = 2;

}  // namespace

FelaBucket::FelaBucket(const FelaPlan& plan, const FelaGenerator& generator,
                       const FelaInfoMapping& info)
    : plan_(plan),
      generator_(generator),
      info_(info),
      sub_buckets_(plan.rules().hierarchical ? plan.workers() : 1),
      helps_(plan.workers(), kNoWorker),
      backward_(plan.workers()) {}

void FelaBucket::Add(uint32_t id, uint32_t reporter) {
  const FelaToken& token = generator_.token(id);
  const uint32_t place = Place(token, reporter);
  SubBucket& sub_bucket = sub_buckets_[place];
  sub_bucket.tokens[PriorityOf(token.stage)].insert(id);
  ++sub_bucket.size;
  ++size_;
  filled_.insert(place);
  if (plan_.IsBackward(token.stage)) {
    ++backward_[info_.holder(token.needs.front())];
  }
}

uint32_t FelaBucket::Place(const FelaToken& token, uint32_t reporter) const {
  if (!plan_.rules().hierarchical) {
    return 0;
  }
  uint32_t place = reporter;
  if (plan_.IsBackward(token.stage)) {
    place = info_.holder(token.needs.front());  // who has the activations
  } else if (!token.needs.empty()) {
    const uint32_t most = info_.HolderOfMost(token);
    place = info_.Held(reporter, token) == info_.Held(most, token) ? reporter : most;
  }
  const uint32_t submodel = plan_.SubmodelOf(token.stage);
  if (plan_.MayTrain(place, submodel)) {
    return place;
  }
  const std::vector<uint32_t>& subset = plan_.Subset(submodel);
  return *std::min_element(subset.begin(), subset.end(), [this](uint32_t one, uint32_t other) {
    return sub_buckets_[one].size < sub_buckets_[other].size;
  });
}

std::optional<uint32_t> FelaBucket::Take(uint32_t worker) {
  uint32_t& helps = helps_[worker];
  if (helps != kNoWorker) {
    --sub_buckets_[helps].helpers;
    helps = kNoWorker;
  }
  const uint32_t own = plan_.rules().hierarchical ? worker : 0;
  std::optional<uint32_t> chosen = Choose(sub_buckets_[own], worker);
  if (chosen) {
    Remove(own, *chosen);
    return chosen;
  }
  // A helper goes to the straggler with the fewest helpers, then the slowest progress.
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> stragglers;
  for (const uint32_t one : filled_) {
    stragglers.emplace_back(sub_buckets_[one].helpers, info_.completed(one), one);
  }
  std::sort(stragglers.begin(), stragglers.end());
  for (const auto& [helpers, progress, straggler] : stragglers) {
    chosen = Choose(sub_buckets_[straggler], worker);
    if (chosen) {
      Remove(straggler, *chosen);
      helps = straggler;
      ++sub_buckets_[straggler].helpers;
      ++helped_;
      return chosen;
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> FelaBucket::Choose(const SubBucket& from, uint32_t worker) const {
  std::optional<uint32_t> first;
  for (const auto& [priority, tokens] : from.tokens) {
    if (!plan_.MayTrain(worker, plan_.SubmodelOf(std::get<1>(priority)))) {
      continue;
    }
    const std::optional<uint32_t> one = ChooseOf(tokens, worker);
    const bool is_conditional = std::get<0>(priority);
    if (one && (plan_.rules().depth_first || is_conditional)) {
      return one;
    }
    first = one && first ? std::min(*one, *first) : (one ? one : first);
  }
  return first;
}

// Of one stage: whose needs this worker has completed the most of, then the smallest (equation 1).
std::optional<uint32_t> FelaBucket::ChooseOf(const std::set<uint32_t>& tokens,
                                             uint32_t worker) const {
  std::optional<uint32_t> best;
  double best_score = -1;
  for (const uint32_t id : tokens) {
    const FelaToken& token = generator_.token(id);
    if (!MayTake(worker, token)) {
      continue;
    }
    if (!plan_.rules().depth_first || token.needs.empty()) {
      return id;
    }
    const double score =
        static_cast<double>(info_.Held(worker, token)) / static_cast<double>(token.needs.size());
    if (score > best_score) {
      best = id;
      best_score = score;
    }
  }
  return best;
}

bool FelaBucket::MayTake(uint32_t worker, const FelaToken& token) const {
  if (!plan_.IsBackward(token.stage)) {
    return true;
  }
  const uint32_t holder = info_.holder(token.needs.front());
  return holder == worker ||
         (plan_.rules().recompute && backward_[holder] >= kWaitingForRecomputing);
}

void FelaBucket::Remove(uint32_t place, uint32_t id) {
  const FelaToken& token = generator_.token(id);
  SubBucket& sub_bucket = sub_buckets_[place];
  const auto stage = sub_bucket.tokens.find(PriorityOf(token.stage));
  stage->second.erase(id);
  if (stage->second.empty()) {
    sub_bucket.tokens.erase(stage);
  }
  --size_;
  if (--sub_bucket.size == 0) {
    filled_.erase(place);
  }
  if (plan_.IsBackward(token.stage)) {
    --backward_[info_.holder(token.needs.front())];
  }
}

}  // namespace trepak
