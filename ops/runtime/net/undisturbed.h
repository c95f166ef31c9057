// For tests: measurements that a busy machine can spoil.

#ifndef TREPAK_OPS_RUNTIME_NET_UNDISTURBED_H_
#define TREPAK_OPS_RUNTIME_NET_UNDISTURBED_H_

#include <chrono>

namespace trepak {

// Measures until the figure is below the limit, or a minute has passed; returns the last figure.
// A shared machine may stand still for seconds: that a thing can be done in time is what is tested.
template <typename Measure>
double Undisturbed(double limit, const Measure& measure) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  double figure = measure();
  while (figure >= limit && std::chrono::steady_clock::now() < deadline) {
    figure = measure();
  }
  return figure;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UNDISTURBED_H_
