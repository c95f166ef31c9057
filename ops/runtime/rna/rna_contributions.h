// Gradients that a rank has computed and not contributed yet (RNA; thesis, section 5.1.3).

#ifndef TREPAK_OPS_RUNTIME_RNA_RNA_CONTRIBUTIONS_H_
#define TREPAK_OPS_RUNTIME_RNA_RNA_CONTRIBUTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/payload.h"

namespace trepak {

// What a rank brings to a round.
struct Contribution {
  uint32_t gradients = 0;  // that were combined; 0 is a null gradient
  uint64_t samples = 0;    // computed since the round before, those of dropped gradients included
  uint64_t staleness = 0;  // the largest: rounds with contributors since a gradient was begun
  double rate = 0;         // the learning rate of the latest gradient

  struct Part {
    Payload gradients;
    double factor = 1;
  };
  std::vector<Part> parts;  // of which the gradient is the sum

  // Writes that sum, and forgets its parts; zeros if there are none.
  void CombineInto(ElementType type, size_t bytes, void* gradient);
};

// A step's gradient, and what belongs to it.
struct Gradient {
  Payload values;        // none if they are not finite
  uint64_t version = 0;  // of the parameters that it was computed with
  uint64_t samples = 0;
  double rate = 0;
};

// Parameters have version 0 at first, and each round with contributors makes the next one. A
// gradient that was computed with version t, and is to change version k, is k - t rounds stale.
//
// Thread safety: none, the owner locks.
class RnaContributions {
 public:
  // How several gradients become one.
  enum class Combine : uint8_t {
    kByVersion,  // the mean, weighted by how new they are: the oldest version 1, the next 2, ...
    kSum,        // eager-SGD's
  };

  // `staleness`: gradients that are more rounds stale are dropped, eta in the thesis.
  RnaContributions(ElementType type, size_t bytes, uint64_t staleness, Combine combine)
      : type_(type), bytes_(bytes), staleness_(staleness), combine_(combine) {}

  // Adds a gradient, whose memory it takes over. One that is not finite is counted, and contributes
  // nothing.
  void Add(Gradient gradient);

  // Drops what is too stale to change a version.
  void Expire(uint64_t version);

  // Whether there is nothing to bring to a round, not even that a gradient was not finite.
  bool empty() const { return sums_.empty() && !was_not_finite_; }

  // Hands everything over that goes into a round which changes `version`, and forgets it.
  Contribution Take(uint64_t version);

  // Gradients that were too stale, and those that were not finite.
  uint64_t dropped() const { return dropped_; }
  uint64_t not_finite() const { return not_finite_; }

 private:
  struct Sum {
    Payload gradients;
    uint32_t count = 0;
  };

  const ElementType type_;
  const size_t bytes_;
  const uint64_t staleness_;
  const Combine combine_;
  std::map<uint64_t, Sum> sums_;  // by version
  uint64_t samples_ = 0;
  double rate_ = 0;
  bool was_not_finite_ = false;  // since the last round
  uint64_t dropped_ = 0;
  uint64_t not_finite_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_RNA_RNA_CONTRIBUTIONS_H_
