#include "ops/runtime/fela/fela_bucket.h"

#include <algorithm>
#include <utility>

namespace trepak {
namespace {

// Who has the activations goes backward through them in about two thirds of the time in which
// another makes them anew and goes backward: that helps where at least two wait for it.
constexpr uint32_t kWaitingForRecomputing = 2;

}  // namespace

FelaBucket::FelaBucket(const FelaPlan& plan, const FelaPermits& permits,
                       const FelaGenerator& generator, const FelaInfoMapping& info)
    : plan_(plan),
      permits_(permits),
      generator_(generator),
      info_(info),
      sub_buckets_(plan.rules().hierarchical ? plan.workers() : 1),
      stragglers_(plan.submodels(), plan.workers()),
      helps_(plan.workers(), kNoWorker),
      backward_(plan.workers()) {}

uint32_t FelaBucket::Add(uint32_t id, uint32_t reporter) {
  const FelaToken& token = generator_.token(id);
  const uint32_t place = Place(token, reporter);
  SubBucket& sub_bucket = sub_buckets_[place];
  sub_bucket.tokens[PriorityOf(token.stage)].insert(id);
  ++sub_bucket.size;
  ++size_;
  if (plan_.IsBackward(token.stage)) {
    ++backward_[info_.holder(token.needs.front())];
  }
  Rank(place);
  return place;
}

// Keeps the order of those whom helpers go to, after a change of what it depends on. Of progress
// that is soon enough: who has completed a token takes the next one of its own at once.
void FelaBucket::Rank(uint32_t place) {
  if (!plan_.rules().hierarchical) {
    return;
  }
  const SubBucket& sub_bucket = sub_buckets_[place];
  const bool may_recompute = plan_.rules().recompute && backward_[place] >= kWaitingForRecomputing;
  std::vector<bool> has(plan_.submodels(), false);
  for (const auto& [priority, tokens] : sub_bucket.tokens) {
    const uint32_t stage = std::get<1>(priority);
    if (!plan_.IsBackward(stage) || may_recompute) {
      has[plan_.SubmodelOf(stage) - 1] = true;
    }
  }
  stragglers_.Update(place, sub_bucket.helpers, info_.completed(place), has);
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
    Rank(std::exchange(helps, kNoWorker));
  }
  const bool hierarchical = plan_.rules().hierarchical;
  const uint32_t own = hierarchical ? worker : 0;
  std::optional<uint32_t> chosen = Choose(sub_buckets_[own], worker);
  if (chosen || !hierarchical) {
    if (chosen) {
      Remove(own, *chosen);
    }
    return chosen;
  }
  const uint32_t straggler = stragglers_.First(permits_.SubmodelsOf(permits_.KindOf(worker)));
  if (straggler == kNoWorker) {
    return std::nullopt;
  }
  chosen = Choose(sub_buckets_[straggler], worker);
  helps = straggler;
  ++sub_buckets_[straggler].helpers;
  ++helped_;
  Remove(straggler, *chosen);
  return chosen;
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
  --sub_bucket.size;
  if (plan_.IsBackward(token.stage)) {
    --backward_[info_.holder(token.needs.front())];
  }
  Rank(place);
}

}  // namespace trepak
