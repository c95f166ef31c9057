// A rank's side of the parameter servers: pushes gradients, and delivers what comes back.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_CLIENT_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_CLIENT_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/runtime/net/endpoint.h"
#include "ops/runtime/parameters/gradient_exchange.h"
#include "ops/runtime/parameters/partition.h"
#include "ops/runtime/parameters/variable_table.h"

namespace trepak {

// Thread safety: every method may be called from any thread; callbacks run in the transport's
// thread or in the caller's, without a lock, and must not block.
class ParameterClient : public Endpoint, public GradientExchange {
 public:
  using Endpoint::error;

  // `table`: has the variables; outlives the client.
  ParameterClient(const Options& options, PartitionOptions partition,
                  std::shared_ptr<ErrorLatch> errors,
                  const VariableTable* table = &VariableTable::Global())
      : Endpoint(options, std::move(errors)), partition_(std::move(partition)), table_(table) {}
  ~ParameterClient() override { Stop(); }

  // Pushes this rank's contribution to the next round of a variable. It is read until it is sent:
  // nobody may write to it any more. What comes back is multiplied with `factor`. `pull`: ask for
  // it at once; otherwise Pull must follow. Answers have the precedence with which they were asked
  // for.
  Status Push(uint32_t key, Precedence precedence, Payload values, double factor = 1.0,
              bool pull = true);

  // Of a variable that has a value instead of rounds: sets it, adds to it, or just asks for it.
  // What is delivered then is the value of afterwards; another rank's changes may be in it.
  Status Assign(uint32_t key, Precedence precedence, Payload values);
  Status Change(uint32_t key, Precedence precedence, Payload values);
  Status Fetch(uint32_t key, Precedence precedence);

  // Asks for the sum of the round that was pushed last.
  Status Pull(uint32_t key, Precedence precedence);

  // See GradientExchange.
  Status PushGradient(uint32_t key, Precedence precedence, Payload values, double factor,
                      bool average, bool pull) override {
    return Push(key, precedence, std::move(values), average ? factor / options().size : factor,
                pull);
  }

 protected:
  Status Handle(Message message) override;
  Status Tick(Clock::time_point now) override;
  void Failed(const Status& status) override;

  Status Usable() const override { return error(); }
  GradientRound* FindRound(uint32_t key) override {
    State* const state = Find(key);
    return state == nullptr ? nullptr : &state->last;
  }
  std::string Whose(uint32_t key) const override;

 private:
  struct State {
    Variable variable;
    std::vector<Slice> slices;
    uint64_t rounds = 0;     // pushed so far
    double factor = 1.0;     // of the last one's result
    bool asked = false;      // for the last one
    bool has_rounds = true;  // what was asked for last is one's sum, not a value
    GradientRound last;
  };

  // Both require mutex_. Null, the second with `status`, if the table has no such variable.
  State* Find(uint32_t key);
  State* Find(uint32_t key, Status* status);
  // Sends values, or what asks for them, and waits for what comes back.
  Status Ask(uint32_t key, Precedence precedence, MessageKind kind, Payload values, double factor,
             bool pull);
  Status SendSlices(uint32_t key, Precedence precedence, const State& state, MessageKind kind,
                    uint8_t flags, const Payload& values);

  using GradientExchange::mutex_;

  const PartitionOptions partition_;
  const VariableTable* const table_;
  std::unordered_map<uint32_t, State> states_;  // Guarded by mutex_. Of variables that were used.
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_PARAMETER_CLIENT_H_
