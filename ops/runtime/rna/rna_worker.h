// A rank's side of RNA: what it computes, the rounds it takes part in, and their results.

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_WORKER_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_WORKER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ops/runtime/coordination/coordinated_worker.h"
#include "ops/runtime/observe/timeline.h"
#include "ops/runtime/parameters/global_parameters.h"
#include "ops/runtime/rna/rna_contributions.h"
#include "ops/runtime/rna/rna_exchange.h"

namespace trepak {

// Sums the buffers of all ranks of a group, which call it in the same order.
class RoundReducer {
 public:
  virtual ~RoundReducer() = default;

  // Sums in place, and waits until that is done, or fails, or `given_up` turns true: then somebody
  // may still use the buffer, whose owner must be kept. `call`: which one this is, from 0 on.
  virtual Status Sum(uint64_t call, ElementType type, const Payload& buffer,
                     const std::function<bool()>& given_up) = 0;
};

// Training writes gradients and reads finished rounds, and waits for neither. A thread of the
// worker's own takes part in the rounds: it brings what was written since the round before, a null
// gradient if there is nothing.
//
// Every rank sees the same rounds in the same order. Who applies each of them once has the same
// parameters as all others that have applied as many.
//
// Thread safety: every method may be called from any thread; callbacks run in one of the worker's
// threads or in the caller's, without a lock, and must not block.
class RnaWorker : public CoordinatedWorker, public std::enable_shared_from_this<RnaWorker> {
 public:
  static constexpr const char* kSystem = "rna";

  struct Rules {
    ElementType type = ElementType::kFloat32;
    size_t elements = 0;     // of all gradients together
    uint64_t staleness = 3;  // see RnaContributions
    RnaContributions::Combine combine = RnaContributions::Combine::kByVersion;
    bool aligned = false;  // a step belongs to the round of its number, see Await
    RnaExchange::Rules exchange;
    uint32_t members = 1;  // of its group
    bool leads = false;    // it, when that exchanges parameters for the last time
    Timeline* timeline = &Timeline::Global();  // shows the rounds; outlives the worker
    int row = 0;                               // of the timeline's rounds
    uint32_t run = 0;  // the same rank's workers number their rounds anew, and this tells which
  };

  // The result of a round, or of an exchange after one.
  struct Round {
    uint64_t number = 0;
    Payload sum;  // of the contributions; after an exchange, the parameters to adopt
    bool is_exchange = false;
    double contributors = 0;  // ranks that brought a gradient
    uint64_t samples = 0;     // of all ranks, see Contribution; after an exchange, of other groups
    double rate = 0;          // mean of the contributors' learning rates
    uint32_t initiator = 0;   // rank
    bool exchanges = false;   // when it is applied, this rank is to exchange parameters
  };

  // What has happened here so far.
  struct Counters {
    uint64_t rounds = 0;       // that have finished
    uint64_t contributed = 0;  // of these, in which this rank brought a gradient
    uint64_t gradients = 0;    // brought
    uint64_t dropped = 0;      // too stale
    uint64_t not_finite = 0;
    uint64_t staleness = 0;     // sum over the contributed rounds
    uint64_t contributors = 0;  // sum over the rounds
    uint64_t steps = 0;         // that were timed, from one write to the next
    uint64_t step_nanoseconds = 0;
    uint64_t copy_nanoseconds = 0;  // in which gradients were copied in and out
  };

  using Callback = std::function<void(const Status&)>;
  using ValuesCallback = std::function<void(const Status&, Payload)>;

  // `global`: what groups exchange parameters through; null if there are none. The worker must be
  // owned by a shared_ptr then.
  RnaWorker(const Options& options, const Rules& rules, uint32_t coordinator,
            std::shared_ptr<RoundReducer> reducer, std::shared_ptr<GlobalParameters> global,
            std::shared_ptr<ErrorLatch> errors);
  ~RnaWorker() override;

  // Hands over the gradient of a step, computed with the parameters of now: after the rounds that
  // were read. Takes the memory over; its version is set here.
  Status Write(Gradient gradient);

  // Rounds that have finished and were not read. After a drain and until the next write, those that
  // the drain waited for: other ranks may have gone on. While parameters are locked, what came of
  // the exchange is the only one.
  size_t finished() const;

  // Rounds that are to be read after a drain, finished or not.
  size_t remaining() const;

  // Returns the oldest one.
  Status Read(Round* round);

  // Exchanges parameters with other groups, after a round that has said so was applied.
  Status Exchange(const Payload& values);

  // What becomes of the parameters of the whole job when all groups have drained: `leads` brings
  // its group's last change, and then all ranks fetch, which is what training goes on from.
  void BringLastChange(const Payload& values, Callback callback);
  void Fetch(ValuesCallback callback);

  // Sets the parameters of the whole job; one rank does, before all fetch them.
  void Assign(Payload values, Callback callback);

  // Samples of other groups that the last fetch has brought.
  uint64_t TakeSamples();

  // Waits for a round to read; not if this rank has nothing that a round could take. Where steps
  // are aligned, waits until the round of the latest step's number has ended. It may have before
  // that step: who comes late does not wait, and does not start a further round either.
  void Await(Callback callback);

  // Says that this rank computes no more, and waits until all ranks have said so and the last round
  // has finished. Afterwards training goes on as before.
  void Drain(Callback callback);

  // Ends the threads; not from one of them.
  void Shutdown() override;

  Counters counters() const;
  void CountCopying(std::chrono::nanoseconds took);

  uint32_t members() const { return rules_.members; }

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

 private:
  size_t bytes() const { return rules_.elements * SizeOf(rules_.type); }
  Status Answer(MessageKind kind, uint64_t round, uint8_t flags = 0);
  // Requires mutex_. Answers a probe if there is something to contribute.
  Status AnswerProbe();
  // What the thread is to do.
  struct Task {
    uint64_t round = 0;
    uint32_t initiator = 0;
    bool is_exchange = false;  // adopts what came of one; otherwise takes part in the round
  };
  // The thread's.
  void Loop();
  Status TakePart(const Task& task);
  Status Adopt(const Task& task);
  Status Sum(const Payload& buffer);
  // Fails, for all of the group, if parameters can't be exchanged.
  Status CheckParameters(const Payload& values);
  // Show in the timeline, if that is on, what the thread has done since `begin`.
  void ShowRound(const Round& round, const Contribution& mine, Clock::time_point begin) const;
  void ShowExchange(uint64_t round, Clock::time_point begin) const;
  // All require mutex_.
  size_t Finished() const;
  // Of the parameters that the next round is to change; one that is under way is taken to change
  // them too.
  uint64_t NextVersion() const { return ended_version_ + (started_ - ended_); }
  bool MustWait() const;
  void Exchanged(uint64_t round, const Status& status, Payload values, uint64_t total);
  std::string NotYet() const;
  Status CheckThatRoundsGoOn(Clock::time_point now);
  void WarnOfNotFinite() const;
  double At(const Payload& buffer, size_t element) const;
  void Put(Payload* buffer, size_t element, double value) const;
  uint64_t SamplesAt(const Payload& buffer) const;
  void PutSamples(Payload* buffer, uint64_t samples) const;
  // Calls those that need not wait any more.
  void WakeWaiting();

  const Rules rules_;
  const std::shared_ptr<RoundReducer> reducer_;
  const std::shared_ptr<GlobalParameters> global_;
  uint64_t calls_ = 0;  // of the reducer; the thread's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  RnaContributions contributions_;
  std::optional<uint64_t> probe_;  // not answered yet
  std::deque<Task> tasks_;
  RnaExchange exchange_;
  std::optional<RnaExchange::Outcome> exchanged_;  // that this rank brings to its group
  uint64_t others_samples_ = 0;
  uint64_t started_ = 0;            // rounds
  uint64_t taken_ = 0;              // rounds that have this rank's contribution
  uint64_t ended_ = 0;              // rounds
  uint64_t ended_version_ = 0;      // of the parameters after these
  uint64_t read_ = 0;               // rounds
  uint64_t read_version_ = 0;       // of the parameters after these
  uint64_t due_ = 0;                // where steps are aligned: round of the next step
  std::deque<Round> rounds_;        // to be read
  std::optional<uint64_t> last_;    // all rounds before it are to end a drain
  Clock::time_point drains_since_;  // or has known where its drain ends
  Clock::time_point locked_since_;
  uint32_t locked_by_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
  std::optional<uint64_t> limit_;  // what may be read, after a drain
  std::vector<Callback> awaiting_;
  Clock::time_point awaiting_since_;
  Callback on_drained_;
  Counters counters_;
  std::optional<Clock::time_point> written_;  // last, since the last drain
  Clock::time_point stepping_since_;          // with gradients that no round has taken

  std::thread thread_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_WORKER_H_
