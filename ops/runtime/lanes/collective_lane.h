// Gradients of one optimizer through collectives, without a training step that waits for them.

#ifndef TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_LANE_H_
#define TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_LANE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/runtime/lanes/collective_calls.h"
#include "ops/runtime/lanes/piece_schedule.h"
#include "ops/runtime/parameters/gradient_exchange.h"
#include "ops/runtime/parameters/variable_table.h"

namespace trepak {

// A collective needs all ranks, so a rank can't choose what to send by itself: ranks that choose
// differently would wait for each other for ever. All of them therefore agree, in turns: in a small
// sum each says which gradients it has pushed, and learns which all have. From that all ranks
// choose the same window of pieces, first layers first, and start its sums, together with the next
// turn's small sum, which Horovod fuses with them. While one window's sums are under way the next
// window may be chosen, but none after it: what is urgent waits for these two at most.
//
// The first layers' gradients, up to some bytes, are needed too soon for that. A rank starts their
// sums when it pushes them. Horovod runs such a sum when all ranks have; none of them holds it
// back, so that nobody waits for ever.
//
// A rank that has called Horovod's join() adds zeros to all sums; the others choose without it.
//
// A rank takes part in a turn when it has something to say: a gradient that was pushed and not
// chosen, or pieces that are left. The others' small sum waits for it until then, so that nothing
// is sent while nothing is to be done.
//
// Thread safety: every method may be called from any thread; callbacks run in the collectives'
// thread or in the caller's. To be owned by a shared_ptr, which collectives under way share.
class CollectiveLane : public GradientExchange,
                       public std::enable_shared_from_this<CollectiveLane> {
 public:
  struct Options {
    std::string name;  // its collectives' names begin with it; no other lane's do
    std::string me;    // how errors name this rank
    PieceSchedule::Rules rules;
  };

  // All ranks make it with the same name, rules and variables, first layers first.
  CollectiveLane(Options options, const std::vector<Variable>& variables,
                 std::shared_ptr<CollectiveCalls> calls);

  Status PushGradient(uint32_t key, Precedence precedence, Payload values, double factor,
                      bool average, bool pull) override;

  // Ends it: what waits gets this error, and so does every later call.
  void Fail(const Status& status);

 protected:
  Status Usable() const override { return error_; }
  GradientRound* FindRound(uint32_t key) override;
  std::string Whose(uint32_t key) const override;

 private:
  struct Gradient {
    Variable variable;
    GradientRound last;
    Payload values;  // of the last round, while it travels
    double factor = 1.0;
    bool average = false;
  };

  // What is to be started when the lock is not held.
  using Turn = std::vector<CollectiveCalls::Sum>;

  // Requires mutex_. Takes part in the next turn, if this rank has something to say.
  void Ask(Turn* turn);
  void Start(Turn turn);
  void Decide(const Status& status, const Payload& shares);
  CollectiveCalls::Sum SumOf(const PieceSchedule::Piece& piece, uint64_t window);
  void Finish(const Status& status, const PieceSchedule::Piece& piece, uint64_t window);

  const Options options_;
  const std::shared_ptr<CollectiveCalls> calls_;
  std::unordered_map<uint32_t, size_t> places_;  // by key, in gradients_
  size_t urgent_ = 0;                            // places below it wait for no window

  // All guarded by mutex_.
  Status error_;
  std::vector<Gradient> gradients_;
  std::vector<float> pushed_;  // by place: 1 if pushed and not chosen
  PieceSchedule schedule_;
  bool asking_ = false;  // a turn's collective is under way
  uint64_t window_ = 0;  // the number of the last one
  size_t newest_ = 0;    // its pieces that are under way
  size_t older_ = 0;     // those of windows before
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_LANES_COLLECTIVE_LANE_H_
