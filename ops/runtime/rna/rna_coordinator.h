// Decides when a round of RNA starts (thesis, sections 5.1.1 and 5.1.2); its first member runs it.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_COORDINATOR_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "ops/runtime/coordination/coordinator.h"

namespace trepak {

// Keeps membership, and no progress of anybody. For each round it probes some ranks, drawn at
// random; one answers when it has gradients. With enough answers the round starts on all ranks, and
// the other probes have expired. Ranks that drain are not probed; when all do, what they still have
// goes into a last round, and all learn where the rounds have stopped.
//
// Thread safety: as Endpoint says; everything here belongs to the transport's thread.
class RnaCoordinator : public Coordinator {
 public:
  struct Rules {
    std::vector<uint32_t> members;  // ranks that take part
    uint32_t choices = 2;           // of them are probed per round
    uint32_t quorum = 1;            // answers that start it
    uint64_t seed = 0;              // of the draws
  };

  RnaCoordinator(const Options& options, const Rules& rules, std::shared_ptr<ErrorLatch> errors)
      : Coordinator(options, "the coordinator of rounds", rules.members, std::move(errors)),
        rules_(rules),
        random_(rules.seed) {}
  ~RnaCoordinator() override { Stop(); }

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  Status Begin() override { return BeginRound(); }

 private:
  Status OnReady(const Header& header);
  Status OnDrain(const Header& header);
  Status OnExchanged(const Header& header);
  Status BeginRound();
  // Probes further ranks, while too few are and others can be.
  Status Probe();
  // Starts the round if enough ranks have answered, `latest` as the last one; ends the phase if all
  // drain.
  Status Proceed(uint32_t latest);
  Status Start(uint32_t initiator);
  Status EndPhase();
  // Ranks that may be probed and are not.
  std::vector<uint32_t> Idle() const;

  const Rules rules_;
  std::mt19937_64 random_;
  uint64_t round_ = 0;                 // to start next
  std::set<uint32_t> probed_;          // in this round, and have not answered
  std::set<uint32_t> answered_;        // in this round
  std::set<uint32_t> with_gradients_;  // of those that drain, for a further round
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_COORDINATOR_H_
