// A tensor that Dymem swaps.

#ifndef TREPAK_OPS_DYMEM_TENSOR_H_
#define TREPAK_OPS_DYMEM_TENSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "ops/dymem.h"
#include "tensorflow/core/framework/tensor.h"

namespace trepak {

// It leaves when it is made, and is brought back once. Whoever shares it last drops what is left of
// it: a step that failed leaves nothing behind.
//
// Thread safety: every method may be called from any thread.
class SwappedTensor : public std::enable_shared_from_this<SwappedTensor> {
 public:
  static constexpr char kName[] = "swapped tensor";
  using Fetched = std::function<void(const absl::Status&, tensorflow::Tensor)>;

  // `node`: has its memory when it comes back; for placement and errors. `step`: fails if there is
  // no room for it then.
  static std::shared_ptr<SwappedTensor> Offload(Dymem* dymem, const std::string& node, int64_t step,
                                                tensorflow::Tensor tensor);
  ~SwappedTensor();
  SwappedTensor(const SwappedTensor&) = delete;
  SwappedTensor& operator=(const SwappedTensor&) = delete;

  // Begins to bring it back, if there is room now.
  void Prefetch();
  // Brings it back, if it is not there yet, and waits for room if need be. Calls `fetched` once, by
  // any thread.
  void Fetch(Fetched fetched);

 private:
  // What the tensor holds its memory by; the engine's release lets go of it.
  struct Hold {
    tensorflow::Tensor tensor;
  };
  enum class State { kAway, kComing, kHere };

  SwappedTensor(Dymem* dymem, std::string node, int64_t step, const tensorflow::Tensor& tensor)
      : dymem_(*dymem),
        node_(std::move(node)),
        step_(step),
        type_(tensor.dtype()),
        shape_(tensor.shape()),
        hold_(std::make_shared<Hold>(Hold{tensor})) {}

  void Bring(Patience patience);
  Status Allocate(Patience patience, size_t bytes, char** to);
  void Came(Patience patience, const Status& status);

  Dymem& dymem_;
  const std::string node_;
  const int64_t step_;
  const tensorflow::DataType type_;
  const tensorflow::TensorShape shape_;
  const std::shared_ptr<Hold> hold_;
  int64_t handle_ = 0;
  tensorflow::Tensor back_;  // of the stream that brings it, then of who has waited for it

  std::mutex mutex_;
  State state_ = State::kAway;  // Guarded by mutex_.
  Fetched waiting_;             // Guarded by mutex_.
};

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_TENSOR_H_
