#include "ops/runtime/fela/fela_iteration.h"

namespace trepak {

FelaIteration::FelaIteration(uint64_t number_, const FelaPlan& plan_, const FelaPermits& permits)
    : number(number_),
      plan(plan_),
      generator(plan_),
      info(plan_.numbers(), plan_.workers()),
      bucket(plan_, permits, generator, info),
      waiting(permits, plan_.workers()),
      samples(plan_.workers()) {}

std::vector<uint32_t> FelaIteration::AddAll(const std::vector<uint32_t>& made, uint32_t reporter) {
  std::vector<uint32_t> places;
  for (const uint32_t token : made) {
    places.push_back(bucket.Add(token, reporter));
  }
  return places;
}

FelaIteration::Assignment FelaIteration::Assign(uint32_t worker, const FelaToken& token) const {
  Assignment made;
  made.iteration = number;
  made.worker = worker;
  made.token = token.id;
  made.stage = token.stage;
  made.samples = token.samples;
  const bool backward = plan.IsBackward(token.stage);
  const FelaToken& forward = backward ? generator.token(token.needs.front()) : token;
  if (backward) {
    made.recomputes = info.holder(forward.id) != worker;
    made.inputs.push_back(
        {FelaChunkKind::kGradient, forward.id, info.holder(token.needs.back()), token.samples});
  }
  if (!backward || made.recomputes) {
    AddInputs(forward, &made);
  }
  std::vector<uint32_t> leaves;
  AddLeaves(forward, &leaves);
  for (const uint32_t leaf : leaves) {
    made.ranges.push_back(RangeOf(leaf));
    if (token.stage == plan.submodels()) {
      made.inputs.push_back(
          {FelaChunkKind::kLabels, leaf, plan.OwnerOf(leaf), generator.token(leaf).samples});
    }
  }
  return made;
}

void FelaIteration::AddInputs(const FelaToken& forward, Assignment* assignment) const {
  if (forward.stage == 1) {
    assignment->inputs.push_back(
        {FelaChunkKind::kSamples, forward.id, plan.OwnerOf(forward.id), forward.samples});
  }
  for (const uint32_t need : forward.needs) {
    assignment->inputs.push_back(
        {FelaChunkKind::kOutput, need, info.holder(need), generator.token(need).samples});
  }
}

void FelaIteration::AddLeaves(const FelaToken& forward, std::vector<uint32_t>* leaves) const {
  if (forward.stage == 1) {
    leaves->push_back(forward.id);
  }
  for (const uint32_t need : forward.needs) {
    AddLeaves(generator.token(need), leaves);
  }
}

FelaIteration::Range FelaIteration::RangeOf(uint32_t first_token) const {
  const uint32_t owner = plan.OwnerOf(first_token);
  const uint32_t i = first_token - plan.PartOf(owner, samples[owner], 0).token;
  const FelaPlan::Part part = plan.PartOf(owner, samples[owner], i);
  return {part.first, part.samples};
}

}  // namespace trepak
