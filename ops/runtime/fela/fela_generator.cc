#include "ops/runtime/fela/fela_generator.h"

#include <utility>

namespace trepak {

FelaGenerator::FelaGenerator(const FelaPlan& plan)
    : plan_(plan),
      tokens_(plan.numbers()),
      stages_(plan.stages()),
      has_begun_(plan.workers(), false) {
  for (Stage& one : stages_) {
    one.home.resize(plan.workers());
    one.home_made.resize(plan.workers());
    one.gathered.resize(plan.workers());
  }
}

std::vector<uint32_t> FelaGenerator::Begin(uint32_t worker, uint32_t samples) {
  std::vector<uint32_t> made;
  has_begun_[worker] = true;
  ++begun_;
  const uint32_t count = plan_.FirstTokens(worker, samples);
  for (uint32_t i = 0; i < count; ++i) {
    const FelaPlan::Part part = plan_.PartOf(worker, samples, i);
    FelaToken token;
    token.id = part.token;
    token.stage = 1;
    token.samples = part.samples;
    token.home = plan_.rules().hierarchical ? worker : kNoWorker;
    Add(std::move(token), &made);
  }
  if (plan_.rules().hierarchical) {
    stage(1).home[worker] = count;
    for (uint32_t next = 2; next <= plan_.submodels(); ++next) {
      stage(next).home[worker] = stage(next - 1).home[worker] / plan_.GroupOf(next - 1);
    }
  }
  stage(1).all_made = begun_ == plan_.workers();
  Close(&made);  // the last worker may have come without samples
  return made;
}

std::vector<uint32_t> FelaGenerator::Complete(uint32_t id) {
  std::vector<uint32_t> made;
  const FelaToken& token = tokens_[id];
  ++stage(token.stage).completed;
  if (token.stage < plan_.submodels()) {
    CompleteForward(token, &made);
    return made;
  }
  // The gradients of what it was made of are there: of each forward token's output.
  const uint32_t forward = plan_.IsBackward(token.stage) ? plan_.ForwardOf(id) : id;
  for (const uint32_t need : tokens_[forward].needs) {
    FelaToken backward;
    backward.id = plan_.BackwardOf(need);
    backward.stage = token.stage + 1;
    backward.samples = tokens_[need].samples;
    backward.needs = {need, id};
    backward.home = tokens_[need].home;
    Add(std::move(backward), &made);
  }
  return made;
}

void FelaGenerator::CompleteForward(const FelaToken& token, std::vector<uint32_t>* made) {
  const uint32_t group = plan_.GroupOf(token.stage);
  Stage& mine = stage(token.stage);
  Stage& next = stage(token.stage + 1);
  const uint32_t home = token.home;
  if (home != kNoWorker && next.home_made[home] < next.home[home]) {
    std::vector<uint32_t>& gathered = mine.gathered[home];
    gathered.push_back(token.id);
    if (gathered.size() == group) {
      ++next.home_made[home];
      made->push_back(Join(token.stage + 1, std::exchange(gathered, {}), home));
    }
  } else {
    mine.pool.push_back(token.id);
    if (mine.pool.size() == group) {
      std::vector<uint32_t> needs(mine.pool.begin(), mine.pool.end());
      mine.pool.clear();
      made->push_back(Join(token.stage + 1, std::move(needs), kNoWorker));
    }
  }
  Close(made);
}

void FelaGenerator::Close(std::vector<uint32_t>* made) {
  for (uint32_t number = 1; number < plan_.submodels(); ++number) {
    Stage& mine = stage(number);
    if (!mine.all_made || mine.completed < mine.made || stage(number + 1).all_made) {
      continue;
    }
    if (!mine.pool.empty()) {
      std::vector<uint32_t> needs(mine.pool.begin(), mine.pool.end());
      mine.pool.clear();
      made->push_back(Join(number + 1, std::move(needs), kNoWorker));
    }
    stage(number + 1).all_made = true;
  }
}

uint32_t FelaGenerator::Join(uint32_t number, std::vector<uint32_t> needs, uint32_t home) {
  FelaToken token;
  token.id = plan_.FirstOfStage(number) + stage(number).made;
  token.stage = number;
  for (const uint32_t need : needs) {
    token.samples += tokens_[need].samples;
  }
  token.needs = std::move(needs);
  token.home = home;
  ++stage(number).made;
  const uint32_t id = token.id;
  tokens_[id] = std::move(token);
  return id;
}

void FelaGenerator::Add(FelaToken token, std::vector<uint32_t>* made) {
  ++stage(token.stage).made;
  made->push_back(token.id);
  const uint32_t id = token.id;
  tokens_[id] = std::move(token);
}

bool FelaGenerator::IsComplete(uint32_t number) const {
  const uint32_t last = plan_.submodels();
  const Stage& one = stage(number);
  if (number <= last) {
    return one.all_made && one.completed == one.made;
  }
  // As many go backward through a sub-model as have gone forward.
  const Stage& forward = stage(plan_.SubmodelOf(number));
  return forward.all_made && forward.completed == forward.made && one.completed == forward.made;
}

}  // namespace trepak
