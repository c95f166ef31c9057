// What ranks ask an owner of rows for, as it travels.
//
// A request is one split of whole numbers from one rank to another: for each shard that the owner
// has, in the plan's order, how many rows; after that, the rows, counted within the shard. The
// answer, and the gradients of it, have the rows' numbers in the same order.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_REQUESTS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_plan.h"

namespace trepak {

// Values that belong to somebody else.
template <typename Element>
struct Span {
  const Element* data = nullptr;
  size_t size = 0;

  const Element& operator[](size_t i) const { return data[i]; }
  const Element* begin() const { return data; }
  const Element* end() const { return data + size; }
};

// Checked requests to one rank from all ranks. Rows are views of the buffer. Thread safety: const
// methods may be called from many threads at once.
class EmbeddingRequests {
 public:
  struct Part {
    Span<int64_t> rows;
    size_t values = 0;  // where the first row's numbers are, in a buffer of all ranks' answers
  };

  // Fails, naming the sender, if what it sent is not a request for rows that this rank has.
  // `splits`: by sender, how much of the buffer is its.
  static Status Parse(const EmbeddingPlan& plan, size_t rank, Span<int64_t> buffer,
                      Span<int64_t> splits, EmbeddingRequests* requests);

  // What a sender asks of a shard, which is counted among those of this rank.
  const Part& part(size_t sender, size_t shard) const { return parts_[sender * shards_ + shard]; }

  // Numbers in the answer; by sender, and of all.
  const std::vector<int64_t>& value_splits() const { return value_splits_; }
  size_t values() const { return values_; }

  size_t rows() const { return rows_; }

 private:
  Status ParseOne(const EmbeddingPlan& plan, size_t rank, Span<int64_t> request);

  size_t shards_ = 0;
  std::vector<Part> parts_;
  std::vector<int64_t> value_splits_;
  size_t values_ = 0;
  size_t rows_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_REQUESTS_H_
