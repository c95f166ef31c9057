#include "ops/runtime/dymem/replay_bounds.h"

#include <algorithm>
#include <vector>

namespace trepak {

void AddBounds(const ReplayProgram& program, ReplayFigures* figures) {
  std::vector<double> ends;
  double now = 0;
  for (const ReplayProgram::Layer& layer : program.layers) {
    ends.push_back(now += layer.seconds);
  }
  const double turn = program.first_backward == 0 ? 0 : ends[program.first_backward - 1];
  const double whole = ends.empty() ? 0 : ends.back();
  std::vector<const ReplayProgram::Copy*> by_begin;
  for (const ReplayProgram::Copy& copy : program.copies) {
    by_begin.push_back(&copy);
  }
  std::stable_sort(by_begin.begin(), by_begin.end(),
                   [](const auto* a, const auto* b) { return a->leaves_after < b->leaves_after; });
  double out = 0;
  for (const auto* const copy : by_begin) {
    out = std::max(out, ends[copy->leaves_after]) + copy->seconds;
  }
  figures->forward.bound = std::max(out, turn);
  double in = 0;
  double bound = whole - turn;
  for (const ReplayProgram::Copy& copy : program.copies) {
    in += copy.seconds;
    const double begun = copy.needed_at == 0 ? 0 : ends[copy.needed_at - 1];
    bound = std::max(bound, in + whole - begun);
  }
  figures->backward.bound = bound;
}

}  // namespace trepak
