// What makes this rank slower than others, on purpose: a factor, delays by step, an end by signal.
//
// The delays are those of the straggler scenarios that RNA (thesis, section 5.5) and Fela (section
// V-C) are measured in.

#ifndef TREPAK_OPS_RUNTIME_OBSERVE_INJECTION_H_
#define TREPAK_OPS_RUNTIME_OBSERVE_INJECTION_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace trepak {

struct DelayRule {
  enum class Kind {
    kUniform,      // each step, between `low` and `high` seconds
    kRoundRobin,   // `high` seconds, in the steps whose number is this rank modulo the world size
    kProbability,  // `high` seconds in each step, with `probability`
  };
  Kind kind = Kind::kUniform;
  double low = 0;
  double high = 0;
  double probability = 0;
};

struct InjectionOptions {
  double slow = 1;  // computing takes this many times as long
  std::vector<DelayRule> delays;
  uint64_t seed = 0;
  int rank = 0;
  int size = 1;
  int64_t kill_step = -1;  // this process gets SIGKILL when it ends this step; negative: never
};

// Returns by how many seconds a step is delayed, all rules together. A function of its arguments
// alone: a seed gives every run the same delays, in whatever order they are asked for.
double DelaySeconds(const InjectionOptions& options, int64_t step);

// Keeps count of this process's steps, and of what still delays the current one.
// Thread safety: every method may be called from any thread.
class Injection {
 public:
  using Duration = std::chrono::steady_clock::duration;

  Injection() = default;
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;

  // Begins anew, at step 0.
  void Configure(InjectionOptions options);

  double slow() const;

  // Returns the current step's delay to the first that asks for it, and zero to all others.
  Duration TakeDelay();

  // Ends the current step; kills the process, without a trace, if that was asked for.
  void EndStep();

  int64_t step() const;

  // That of this process.
  static Injection& Global();

 private:
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  InjectionOptions options_;
  int64_t step_ = 0;
  bool delay_taken_ = false;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_OBSERVE_INJECTION_H_
