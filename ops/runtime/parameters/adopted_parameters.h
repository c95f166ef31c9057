// The job's parameters as this rank has taken them over, and what it has changed since.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_ADOPTED_PARAMETERS_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_ADOPTED_PARAMETERS_H_

#include <cstddef>
#include <cstring>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"
#include "ops/runtime/parameters/summation.h"

namespace trepak {

// Thread safety: none, the owner locks.
class AdoptedParameters {
 public:
  AdoptedParameters(ElementType type, size_t bytes) : type_(type), bytes_(bytes) {}

  // Whether there are any yet.
  bool any() const { return values_.size() == bytes_; }

  // Takes a copy: the memory of `values` is for whoever trains with them.
  void Adopt(const Payload& values) { values_ = Payload::Copy(values.data(), bytes_); }

  // By how much parameters of the same size differ from what was adopted. It is small, and so is
  // what rounding takes from it.
  Payload Change(const Payload& values) const {
    Payload change = Payload::Copy(values.data(), bytes_);
    Accumulate(type_, bytes_, -1.0, values_.data(), change.mutable_data());
    return change;
  }

  bool Are(const Payload& values) const {
    return std::memcmp(values.data(), values_.data(), bytes_) == 0;
  }

 private:
  const ElementType type_;
  const size_t bytes_;
  Payload values_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_ADOPTED_PARAMETERS_H_
