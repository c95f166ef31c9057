// AD-PSGD (Lian et al., ICML 2018): each rank has parameters of its own, and averages them with
// those of one other rank at a time, without waiting.

#ifndef TREPAK_OPS_RUNTIME_ADPSGD_ADPSGD_PEER_H_
#define TREPAK_OPS_RUNTIME_ADPSGD_ADPSGD_PEER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "ops/runtime/net/endpoint.h"
#include "ops/runtime/net/payload.h"

namespace trepak {

// Between peers. Payloads begin with how many samples each rank has taken, as far as the sender has
// heard.
namespace adpsgd {
constexpr MessageKind kAverage = KindOf("adpsgd", 1);   // the sender's parameters, for the mean
constexpr MessageKind kAveraged = KindOf("adpsgd", 2);  // the receiver's, as they were before
constexpr MessageKind kCounted = KindOf("adpsgd", 3);   // samples alone
}  // namespace adpsgd

// Even ranks are active: after each step they ask a passive one, an odd rank drawn at random, to
// average. The passive one answers at once with what it has and takes the mean; the active one
// takes the mean when the answer comes, and what it has added meanwhile on top. Nobody who is asked
// asks others, so nothing can wait in a circle, and an active rank has one averaging at a time, so
// each leaves the sum of all parameters as it was.
//
// Ranks tell each other, with each averaging, and all others when they settle, how many samples
// every rank has taken.
//
// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block.
class AdpsgdPeer : public Endpoint {
 public:
  static constexpr const char* kSystem = "adpsgd";

  struct Rules {
    ElementType type = ElementType::kFloat32;
    size_t elements = 0;  // of all parameters together
    uint64_t seed = 0;    // of the draws
  };

  struct Counters {
    uint64_t averagings = 0;  // that this rank has taken part in
    uint64_t steps = 0;       // that it has added
  };

  using Callback = std::function<void(const Status&)>;

  AdpsgdPeer(const Options& options, const Rules& rules, std::shared_ptr<ErrorLatch> errors);
  ~AdpsgdPeer() override { Stop(); }

  // Sets this rank's parameters; no averaging may be on its way.
  Status Assign(const Payload& values);

  // Returns a copy of this rank's parameters, for training to go on from.
  Status Load(Payload* values);

  // Says that training goes on from other values than these parameters.
  Status Show(const Payload& values);

  // Adds to this rank's parameters what training, a step as a rule, has made of the values that it
  // went on from, and begins to average.
  Status Add(const Payload& values, uint64_t samples);

  // Adds what was made of them otherwise, e.g. because a user has set weights; begins nothing.
  Status Bring(const Payload& values);

  // Tells all ranks how many samples have been taken, and waits until no averaging of this rank's
  // is on its way.
  void Settle(Callback callback);

  // Samples of all ranks that this one has heard of since the last call.
  uint64_t TakeSamples();

  Counters counters() const;

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  size_t bytes() const { return rules_.elements * SizeOf(rules_.type); }
  size_t head() const { return options().size * sizeof(uint64_t); }
  bool is_active() const { return options().rank % 2 == 0 && options().size > 1; }
  // All of these require mutex_.
  void Take(const Payload& values);  // what was made of shown_
  Status Begin();
  Payload Packed(size_t size) const;  // samples_ and as much of values_ as goes into `size` bytes
  void Hear(const Payload& packed);
  Status Check(const Payload& values) const;
  void TakeMean(const Payload& theirs, const Payload& mine);

  const Rules rules_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::mt19937_64 random_;
  Payload values_;
  Payload shown_;                  // what training went on from
  std::vector<uint64_t> samples_;  // by rank
  uint64_t taken_ = 0;             // samples
  Payload sent_;                   // what an averaging on its way began with; else of no bytes
  uint32_t asked_ = 0;             // rank
  Clock::time_point asked_at_;
  std::vector<Callback> settling_;
  Counters counters_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_ADPSGD_ADPSGD_PEER_H_
