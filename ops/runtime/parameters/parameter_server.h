// Sums what ranks push and answers what they pull, slice by slice.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_SERVER_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_SERVER_H_

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/runtime/net/endpoint.h"

namespace trepak {

// One server's share of all variables. A slice is known from its first message on.
//
// Synchronous: a slice's round is over when every rank has pushed it; the sum goes, as soon as it
// is there, to all who want it, with the precedence with which they asked. A rank can't be more
// than one round ahead, so one sum per slice is enough.
//
// Asynchronous: a slice has a value, which kAssign sets and kDelta adds to; a pull is answered with
// the value of that moment.
//
// Thread safety: as Endpoint says; everything here belongs to the transport's thread.
class ParameterServer : public Endpoint {
 public:
  struct ServerOptions {
    // Sums in the order of ranks, so that the same gradients give the same bits; the contributions
    // are kept until all have come. Otherwise they are added as they come.
    bool fixed_order = false;
    // What a delta is multiplied with.
    double delta_factor = 1.0;
  };

  // What it has done so far.
  struct Served {
    uint64_t bytes = 0;        // of payloads that came
    uint64_t nanoseconds = 0;  // of CPU time that they took: summing, and answering
  };

  ParameterServer(const Options& options, const ServerOptions& server_options,
                  std::shared_ptr<ErrorLatch> errors)
      : Endpoint(options, std::move(errors)), server_options_(server_options) {}
  ~ParameterServer() override { Stop(); }

  Served served() const {
    return {bytes_.load(std::memory_order_relaxed), nanoseconds_.load(std::memory_order_relaxed)};
  }

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status&) override {}

 private:
  struct Asker {
    uint32_t rank;
    Precedence precedence;
  };

  struct SliceState {
    ElementType type = ElementType::kNone;
    size_t bytes = 0;
    uint64_t round = 0;  // that is being summed
    std::vector<bool> contributed;
    uint32_t contributions = 0;
    std::vector<Payload> kept;  // by rank, if the order is fixed
    Payload sum;
    Clock::time_point first;  // contribution of this round
    std::vector<Asker> askers;
    bool has_result = false;
    Payload result;        // of the round before, or the asynchronous value
    uint64_t version = 0;  // deltas that it holds
  };

  using SliceId = uint64_t;  // key and slice
  static SliceId IdOf(const Header& header) {
    return (static_cast<uint64_t>(header.key) << 32) | header.slice;
  }

  Status Serve(Message message);
  Status Push(SliceState* slice, const Header& header, Payload payload);
  Status Pull(SliceState* slice, const Header& header);
  Status Delta(SliceState* slice, const Header& header, const Payload& payload);
  Status Assign(SliceState* slice, const Header& header, const Payload& payload);
  Status AnswerIfWanted(const SliceState& slice, const Header& header);
  Status CheckShape(SliceState* slice, const Header& header, size_t bytes) const;
  void Add(SliceState* slice, uint32_t rank, Payload payload) const;
  void SumInOrder(SliceState* slice) const;
  Status FinishRound(SliceState* slice, const Header& header);
  Status Answer(const Header& about, const Asker& asker, ElementType type, uint64_t round,
                const Payload& payload);

  const ServerOptions server_options_;
  std::unordered_map<SliceId, SliceState> slices_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> nanoseconds_{0};
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_SERVER_H_
