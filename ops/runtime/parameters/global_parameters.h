// The parameters of a whole job, which its ranks, or groups of them (thesis, section 5.2), change.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_GLOBAL_PARAMETERS_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_GLOBAL_PARAMETERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ops/runtime/net/payload.h"
#include "ops/runtime/parameters/parameter_client.h"

namespace trepak {

// Thread safety: every method may be called from any thread, one call after the other: not before
// the callback of the one before. Callbacks run in any thread, without a lock, and must not block.
class GlobalParameters {
 public:
  // Gets the parameters of afterwards, in memory of its own, and how many samples all have taken
  // together; or why there are none.
  using Callback = std::function<void(const Status&, Payload, uint64_t)>;

  virtual ~GlobalParameters() = default;

  virtual void Assign(Payload values, Callback callback) = 0;
  // Adds to the parameters what so many ranks have changed, times their share of the job; and to
  // the samples.
  virtual void Change(Payload change, uint32_t ranks, uint64_t samples, Callback callback) = 0;
  virtual void Fetch(Callback callback) = 0;

  // Why no call can succeed any more, if that is so.
  virtual Status error() const { return OkStatus(); }
};

// On the job's parameter servers, as some of their variables: `key` is the samples, and the next
// ones are the parts of the parameters.
class ServedParameters : public GlobalParameters {
 public:
  // Consecutive elements that travel together.
  struct Part {
    size_t elements = 0;
    std::function<Precedence()> precedence;  // of their messages now; from any thread
  };

  // All variables must be registered with the client, which may end before this. The servers divide
  // changes by the number of ranks, `size`.
  ServedParameters(std::weak_ptr<ParameterClient> client, uint32_t key, ElementType type,
                   uint32_t size, std::vector<Part> parts)
      : client_(std::move(client)), key_(key), type_(type), size_(size), parts_(std::move(parts)) {}

  void Assign(Payload values, Callback callback) override;
  void Change(Payload change, uint32_t ranks, uint64_t samples, Callback callback) override;
  void Fetch(Callback callback) override;
  Status error() const override;

 private:
  using Ask = Status (ParameterClient::*)(uint32_t key, Precedence precedence, Payload values);
  class Gathering;
  // `values` of no bytes: asks for them.
  void Do(Ask ask, const Payload& values, uint64_t samples, Callback callback);

  const std::weak_ptr<ParameterClient> client_;
  const uint32_t key_;
  const ElementType type_;
  const uint32_t size_;
  const std::vector<Part> parts_;
};

// Not what backward waits for: behind the gradients of whoever uses the same servers.
inline Precedence Late() { return {0, kLastInOrder}; }

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_GLOBAL_PARAMETERS_H_
