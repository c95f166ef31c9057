#include "ops/runtime/fela/fela_scheduler.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace trepak {

FelaScheduler::FelaScheduler(FelaRules rules)
    : plan_(std::move(rules)), permits_(plan_), places_(plan_.workers()) {
  for (uint64_t number = 0; number <= plan_.rules().staleness; ++number) {
    open_.push_back(std::make_unique<FelaIteration>(number, plan_, permits_));
  }
}

Status FelaScheduler::CheckIteration(uint32_t worker, uint64_t iteration) const {
  if (iteration < iteration_ || iteration - iteration_ >= open_.size() ||
      worker >= plan_.workers()) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " is in iteration " +
                                std::to_string(iteration) + ", and the token server in " +
                                std::to_string(iteration_));
  }
  return OkStatus();
}

Status FelaScheduler::Begin(uint32_t worker, uint64_t iteration, uint32_t samples, Orders* orders) {
  TREPAK_RETURN_IF_ERROR(CheckIteration(worker, iteration));
  FelaIteration& now = At(iteration);
  if (now.generator.has_begun(worker)) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " begins an iteration twice");
  }
  if (iteration != iteration_ && iteration != places_[worker].reached) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " leaves iterations out");
  }
  if (samples > plan_.rules().batches[worker]) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " comes with " +
                                std::to_string(samples) + " samples, where " +
                                std::to_string(plan_.rules().batches[worker]) +
                                " were agreed upon: give fit the batch_size that it trains with");
  }
  places_[worker].reached = iteration + 1;
  places_[worker].to_the_end = false;
  counters_.most_ahead = std::max(counters_.most_ahead, iteration - iteration_);
  now.samples[worker] = samples;
  ServeWaiting(&now, now.AddAll(now.generator.Begin(worker, samples), worker), orders);
  EndWhatIsTrained(&now, orders);
  return OkStatus();
}

Status FelaScheduler::Request(uint32_t worker, uint64_t iteration, Orders* orders,
                              bool to_the_end) {
  if (iteration < iteration_) {  // it was over before this worker asked
    if (worker < plan_.workers() && !to_the_end) {
      LetAhead(worker, orders);
    }
    return OkStatus();
  }
  TREPAK_RETURN_IF_ERROR(CheckIteration(worker, iteration));
  Place& place = places_[worker];
  if (Waits(worker) || place.in_hand != kNone) {
    ++counters_.duplicates;
    return OkStatus();
  }
  place.reached = std::max(place.reached, iteration + 1);
  place.to_the_end = to_the_end;
  ServeOrWait(worker, orders);
  return OkStatus();
}

Status FelaScheduler::Report(uint32_t worker, uint64_t iteration, uint32_t token, Orders* orders) {
  if (iteration >= iteration_) {
    TREPAK_RETURN_IF_ERROR(CheckIteration(worker, iteration));
  }
  if (iteration < iteration_ ||
      (token < plan_.numbers() && At(iteration).info.holder(token) == worker)) {
    ++counters_.duplicates;
    return OkStatus();
  }
  Place& place = places_[worker];
  if (place.in_hand != token || place.iteration != iteration) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " reports token " +
                                std::to_string(token) + ", which it was not given");
  }
  FelaIteration& now = At(iteration);
  place.in_hand = kNone;
  now.info.Complete(worker, token);
  ++counters_.tokens;
  orders->reported = true;
  const std::vector<uint32_t> places = now.AddAll(now.generator.Complete(token), worker);
  ServeOrWait(worker, orders);
  ServeWaiting(&now, places, orders);
  EndWhatIsTrained(&now, orders);
  return OkStatus();
}

// Gives a worker a token of an iteration, if there is one for it.
bool FelaScheduler::ServeOf(FelaIteration* now, uint32_t worker, Orders* orders) {
  const std::optional<uint32_t> token = now->bucket.Take(worker);
  if (!token) {
    return false;
  }
  places_[worker].iteration = now->number;
  places_[worker].in_hand = *token;
  const Assignment made = now->Assign(worker, now->generator.token(*token));
  counters_.recomputed += made.recomputes ? 1 : 0;
  counters_.inputs += made.inputs.size();
  for (const Input& input : made.inputs) {
    counters_.remote += input.holder == worker ? 0 : 1;
  }
  orders->assignments.push_back(made);
  return true;
}

// Of the iterations that it has begun: age goes before the policies.
bool FelaScheduler::Serve(uint32_t worker, Orders* orders) {
  return std::any_of(open_.begin(), open_.end(), [&](const std::unique_ptr<FelaIteration>& one) {
    return one->number < places_[worker].reached && ServeOf(one.get(), worker, orders);
  });
}

void FelaScheduler::ServeOrWait(uint32_t worker, Orders* orders) {
  if (!Serve(worker, orders)) {
    ++counters_.waits;
    if (!LetAhead(worker, orders)) {
      Wait(worker);
    }
  }
}

bool FelaScheduler::LetAhead(uint32_t worker, Orders* orders) {
  const uint64_t staleness = plan_.rules().staleness;
  const Place& place = places_[worker];
  if (staleness == 0 || place.to_the_end || place.reached > iteration_ + staleness) {
    return false;
  }
  orders->ahead.push_back(worker);
  ++counters_.ahead;
  return true;
}

bool FelaScheduler::Waits(uint32_t worker) const {
  return std::any_of(
      open_.begin(), open_.end(),
      [worker](const std::unique_ptr<FelaIteration>& one) { return one->waiting.Has(worker); });
}

void FelaScheduler::Wait(uint32_t worker) {
  for (const std::unique_ptr<FelaIteration>& one : open_) {
    if (one->number < places_[worker].reached) {
      one->waiting.Add(worker);
    }
  }
}

void FelaScheduler::EndWaiting(uint32_t worker) {
  for (const std::unique_ptr<FelaIteration>& one : open_) {
    if (one->waiting.Has(worker)) {
      one->waiting.Remove(worker);
    }
  }
}

// Serves all that can be, in the order in which they asked. To serve one leaves less for the
// others, so that who can't be served need not be looked at again.
void FelaScheduler::ServeWaiting(FelaIteration* now, const std::vector<uint32_t>& places,
                                 Orders* orders) {
  if (plan_.rules().hierarchical) {
    for (uint32_t first = FirstToServe(*now, places); first != kNoWorker;
         first = FirstToServe(*now, places)) {
      EndWaiting(first);
      ServeOf(now, first, orders);
    }
    return;
  }
  for (const uint32_t worker : now->waiting.all()) {
    if (now->bucket.size() == 0) {
      return;
    }
    if (ServeOf(now, worker, orders)) {
      EndWaiting(worker);
    }
  }
}

// `places`: sub-buckets that may have something for a worker that waits and had nothing before.
uint32_t FelaScheduler::FirstToServe(const FelaIteration& now,
                                     const std::vector<uint32_t>& places) const {
  uint32_t first = kNoWorker;
  for (uint32_t kind = 0; kind < permits_.kinds(); ++kind) {
    if (now.bucket.HasOthers(kind)) {
      first = now.waiting.Earlier(first, now.waiting.FirstOf(kind));
    }
  }
  for (const uint32_t place : places) {
    if (now.waiting.Has(place) && now.bucket.HasOwn(place)) {
      first = now.waiting.Earlier(first, place);
    }
  }
  return first;
}

// Iterations end in their order, though a later one may be trained first.
void FelaScheduler::EndWhatIsTrained(FelaIteration* now, Orders* orders) {
  const uint32_t all = plan_.submodels();
  while (now->trained < all && now->generator.IsComplete(all + now->trained)) {
    orders->trained.push_back(all - now->trained);
    ++now->trained;
  }
  while (open_.front()->is_trained()) {
    EndTheOldest(orders);
  }
}

void FelaScheduler::EndTheOldest(Orders* orders) {
  const FelaIteration& oldest = *open_.front();
  const std::vector<uint32_t> waiting = oldest.waiting.all();
  orders->samples.push_back(
      std::accumulate(oldest.samples.begin(), oldest.samples.end(), uint64_t{0}));
  counters_.helped += oldest.bucket.helped();
  ++counters_.iterations;
  open_.pop_front();
  ++iteration_;
  open_.push_back(
      std::make_unique<FelaIteration>(iteration_ + plan_.rules().staleness, plan_, permits_));
  for (const uint32_t worker : waiting) {
    if (LetAhead(worker, orders)) {
      EndWaiting(worker);
    }
  }
}

FelaScheduler::Counters FelaScheduler::counters() const {
  Counters counters = counters_;
  for (const std::unique_ptr<FelaIteration>& one : open_) {
    counters.helped += one->bucket.helped();
  }
  return counters;
}

std::vector<uint32_t> FelaScheduler::NotBegun() const {
  std::vector<uint32_t> missing;
  for (uint32_t worker = 0; worker < plan_.workers(); ++worker) {
    if (!open_.front()->generator.has_begun(worker)) {
      missing.push_back(worker);
    }
  }
  return missing;
}

std::vector<std::pair<uint32_t, uint32_t>> FelaScheduler::InHand() const {
  std::vector<std::pair<uint32_t, uint32_t>> tokens;
  for (uint32_t worker = 0; worker < plan_.workers(); ++worker) {
    if (places_[worker].in_hand != kNone) {
      tokens.emplace_back(worker, places_[worker].in_hand);
    }
  }
  return tokens;
}

std::vector<uint32_t> FelaScheduler::Away() const {
  std::vector<uint32_t> away;
  bool does_any_wait = false;
  for (uint32_t worker = 0; worker < plan_.workers(); ++worker) {
    const bool waits = Waits(worker);
    does_any_wait = does_any_wait || waits;
    if (!waits && places_[worker].in_hand == kNone) {
      away.push_back(worker);
    }
  }
  return does_any_wait ? away : std::vector<uint32_t>();
}

}  // namespace trepak
