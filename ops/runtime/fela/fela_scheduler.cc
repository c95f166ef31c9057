#include "ops/runtime/fela/fela_scheduler.h"

#include <numeric>
#include <string>

namespace trepak {

FelaScheduler::FelaScheduler(FelaRules rules)
    : plan_(std::move(rules)),
      permits_(plan_),
      now_(std::make_unique<Iteration>(plan_, permits_)) {}

Status FelaScheduler::CheckIteration(uint32_t worker, uint64_t iteration) const {
  if (iteration != iteration_ || worker >= plan_.workers()) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " is in iteration " +
                                std::to_string(iteration) + ", and the token server in " +
                                std::to_string(iteration_));
  }
  return OkStatus();
}

Status FelaScheduler::Begin(uint32_t worker, uint64_t iteration, uint32_t samples, Orders* orders) {
  TREPAK_RETURN_IF_ERROR(CheckIteration(worker, iteration));
  if (now_->generator.has_begun(worker)) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " begins an iteration twice");
  }
  if (samples > plan_.rules().batches[worker]) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " comes with " +
                                std::to_string(samples) + " samples, where " +
                                std::to_string(plan_.rules().batches[worker]) +
                                " were agreed upon: give fit the batch_size that it trains with");
  }
  now_->samples[worker] = samples;
  ServeWaiting(AddAll(now_->generator.Begin(worker, samples), worker), orders);
  EndWhatIsTrained(orders);
  return OkStatus();
}

Status FelaScheduler::Request(uint32_t worker, uint64_t iteration, Orders* orders) {
  if (iteration < iteration_) {
    return OkStatus();  // it was over before this worker asked
  }
  TREPAK_RETURN_IF_ERROR(CheckIteration(worker, iteration));
  if (now_->waiting.Has(worker) || now_->in_hand[worker] != kNone) {
    ++counters_.duplicates;
    return OkStatus();
  }
  ServeOrWait(worker, orders);
  return OkStatus();
}

Status FelaScheduler::Report(uint32_t worker, uint64_t iteration, uint32_t token, Orders* orders) {
  if (iteration < iteration_ || (token < plan_.numbers() && now_->info.holder(token) == worker)) {
    ++counters_.duplicates;
    return OkStatus();
  }
  TREPAK_RETURN_IF_ERROR(CheckIteration(worker, iteration));
  if (now_->in_hand[worker] != token) {
    return InvalidArgumentError("worker " + std::to_string(worker) + " reports token " +
                                std::to_string(token) + ", which it was not given");
  }
  now_->in_hand[worker] = kNone;
  now_->info.Complete(worker, token);
  ++counters_.tokens;
  orders->reported = true;
  const std::vector<uint32_t> places = AddAll(now_->generator.Complete(token), worker);
  ServeOrWait(worker, orders);
  ServeWaiting(places, orders);
  EndWhatIsTrained(orders);
  return OkStatus();
}

std::vector<uint32_t> FelaScheduler::AddAll(const std::vector<uint32_t>& made, uint32_t reporter) {
  std::vector<uint32_t> places;
  for (const uint32_t token : made) {
    places.push_back(now_->bucket.Add(token, reporter));
  }
  return places;
}

// Gives a worker a token, if there is one for it.
bool FelaScheduler::Serve(uint32_t worker, Orders* orders) {
  const std::optional<uint32_t> token = now_->bucket.Take(worker);
  if (!token) {
    return false;
  }
  now_->in_hand[worker] = *token;
  orders->assignments.push_back(Assign(worker, now_->generator.token(*token)));
  return true;
}

void FelaScheduler::ServeOrWait(uint32_t worker, Orders* orders) {
  if (!Serve(worker, orders)) {
    now_->waiting.Add(worker);
    ++counters_.waits;
  }
}

// Serves all that can be, in the order in which they asked. To serve one leaves less for the
// others, so that who can't be served need not be looked at again.
void FelaScheduler::ServeWaiting(const std::vector<uint32_t>& places, Orders* orders) {
  if (plan_.rules().hierarchical) {
    for (uint32_t first = FirstToServe(places); first != kNoWorker; first = FirstToServe(places)) {
      now_->waiting.Remove(first);
      Serve(first, orders);
    }
    return;
  }
  for (const uint32_t worker : now_->waiting.all()) {
    if (now_->bucket.size() == 0) {
      return;
    }
    if (Serve(worker, orders)) {
      now_->waiting.Remove(worker);
    }
  }
}

// `places`: sub-buckets that may have something for a worker that waits and had nothing before.
uint32_t FelaScheduler::FirstToServe(const std::vector<uint32_t>& places) const {
  const FelaWaiting& waiting = now_->waiting;
  uint32_t first = kNoWorker;
  for (uint32_t kind = 0; kind < permits_.kinds(); ++kind) {
    if (now_->bucket.HasOthers(kind)) {
      first = waiting.Earlier(first, waiting.FirstOf(kind));
    }
  }
  for (const uint32_t place : places) {
    if (waiting.Has(place) && now_->bucket.HasOwn(place)) {
      first = waiting.Earlier(first, place);
    }
  }
  return first;
}

void FelaScheduler::EndWhatIsTrained(Orders* orders) {
  const uint32_t all = plan_.submodels();
  while (now_->trained < all && now_->generator.IsComplete(all + now_->trained)) {
    orders->trained.push_back(all - now_->trained);
    ++now_->trained;
  }
  if (now_->trained == all) {
    orders->over = true;
    orders->samples = std::accumulate(now_->samples.begin(), now_->samples.end(), uint64_t{0});
    counters_.helped += now_->bucket.helped();
    ++counters_.iterations;
    ++iteration_;
    now_ = std::make_unique<Iteration>(plan_, permits_);
  }
}

FelaScheduler::Assignment FelaScheduler::Assign(uint32_t worker, const FelaToken& token) {
  Assignment made;
  made.worker = worker;
  made.token = token.id;
  made.stage = token.stage;
  made.samples = token.samples;
  const bool backward = plan_.IsBackward(token.stage);
  const FelaToken& forward = backward ? now_->generator.token(token.needs.front()) : token;
  if (backward) {
    made.recomputes = now_->info.holder(forward.id) != worker;
    counters_.recomputed += made.recomputes ? 1 : 0;
    made.inputs.push_back({FelaChunkKind::kGradient, forward.id,
                           now_->info.holder(token.needs.back()), token.samples});
  }
  if (!backward || made.recomputes) {
    AddInputs(forward, &made);
  }
  std::vector<uint32_t> leaves;
  AddLeaves(forward, &leaves);
  for (const uint32_t leaf : leaves) {
    made.ranges.push_back(RangeOf(leaf));
    if (token.stage == plan_.submodels()) {
      made.inputs.push_back(
          {FelaChunkKind::kLabels, leaf, plan_.OwnerOf(leaf), now_->generator.token(leaf).samples});
    }
  }
  for (const Input& input : made.inputs) {
    counters_.remote += input.holder == worker ? 0 : 1;
  }
  counters_.inputs += made.inputs.size();
  return made;
}

void FelaScheduler::AddInputs(const FelaToken& forward, Assignment* assignment) const {
  if (forward.stage == 1) {
    assignment->inputs.push_back(
        {FelaChunkKind::kSamples, forward.id, plan_.OwnerOf(forward.id), forward.samples});
  }
  for (const uint32_t need : forward.needs) {
    assignment->inputs.push_back({FelaChunkKind::kOutput, need, now_->info.holder(need),
                                  now_->generator.token(need).samples});
  }
}

void FelaScheduler::AddLeaves(const FelaToken& forward, std::vector<uint32_t>* leaves) const {
  if (forward.stage == 1) {
    leaves->push_back(forward.id);
  }
  for (const uint32_t need : forward.needs) {
    AddLeaves(now_->generator.token(need), leaves);
  }
}

FelaScheduler::Range FelaScheduler::RangeOf(uint32_t first_token) const {
  const uint32_t owner = plan_.OwnerOf(first_token);
  const uint32_t i = first_token - plan_.PartOf(owner, now_->samples[owner], 0).token;
  const FelaPlan::Part part = plan_.PartOf(owner, now_->samples[owner], i);
  return {part.first, part.samples};
}

FelaScheduler::Counters FelaScheduler::counters() const {
  Counters counters = counters_;
  counters.helped += now_->bucket.helped();
  return counters;
}

std::vector<uint32_t> FelaScheduler::NotBegun() const {
  std::vector<uint32_t> missing;
  for (uint32_t worker = 0; worker < plan_.workers(); ++worker) {
    if (!now_->generator.has_begun(worker)) {
      missing.push_back(worker);
    }
  }
  return missing;
}

std::vector<std::pair<uint32_t, uint32_t>> FelaScheduler::InHand() const {
  std::vector<std::pair<uint32_t, uint32_t>> tokens;
  for (uint32_t worker = 0; worker < plan_.workers(); ++worker) {
    if (now_->in_hand[worker] != kNone) {
      tokens.emplace_back(worker, now_->in_hand[worker]);
    }
  }
  return tokens;
}

}  // namespace trepak
