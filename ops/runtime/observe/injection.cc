#include "ops/runtime/observe/injection.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace trepak {
namespace {

// SplitMix64's output function: scatters numbers that differ little.
uint64_t Scatter(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Returns a number in [0, 1) that looks random and is the same for the same arguments.
double DrawUniform(uint64_t seed, int rank, int64_t step, size_t rule) {
  uint64_t x = Scatter(seed);
  x = Scatter(x ^ static_cast<uint64_t>(rank));
  x = Scatter(x ^ static_cast<uint64_t>(step));
  x = Scatter(x ^ rule);
  return static_cast<double>(x >> 11) * 0x1p-53;
}

}  // namespace

double DelaySeconds(const InjectionOptions& options, int64_t step) {
  double seconds = 0;
  for (size_t i = 0; i < options.delays.size(); ++i) {
    const DelayRule& rule = options.delays[i];
    const double draw = DrawUniform(options.seed, options.rank, step, i);
    switch (rule.kind) {
      case DelayRule::Kind::kUniform:
        seconds += rule.low + draw * (rule.high - rule.low);
        break;
      case DelayRule::Kind::kRoundRobin:
        seconds += step % options.size == options.rank ? rule.high : 0;
        break;
      case DelayRule::Kind::kProbability:
        seconds += draw < rule.probability ? rule.high : 0;
        break;
    }
  }
  return seconds;
}

void Injection::Configure(InjectionOptions options) {
  std::lock_guard<std::mutex> lock(mutex_);
  options_ = std::move(options);
  step_ = 0;
  delay_taken_ = false;
}

double Injection::slow() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return options_.slow;
}

Injection::Duration Injection::TakeDelay() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (delay_taken_) {
    return Duration::zero();
  }
  delay_taken_ = true;
  const std::chrono::duration<double> delay(DelaySeconds(options_, step_));
  return std::chrono::duration_cast<Duration>(delay);
}

void Injection::EndStep() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (step_ == options_.kill_step) {
    kill(getpid(), SIGKILL);
  }
  ++step_;
  delay_taken_ = false;
}

int64_t Injection::step() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return step_;
}

Injection& Injection::Global() {
  static Injection* const injection = new Injection;
  return *injection;
}

}  // namespace trepak
