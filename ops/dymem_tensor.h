// A tensor that Dymem swaps.

#ifndef TREPAK_OPS_DYMEM_TENSOR_H_
#define TREPAK_OPS_DYMEM_TENSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "ops/dymem.h"
#include "ops/dymem_place.h"
#include "ops/dymem_step.h"
#include "tensorflow/core/framework/tensor.h"

namespace trepak {

// It leaves when it is made, and is read once. What was prefetched and not read yet may leave again
// at a shortage of memory. Whoever shares it last drops what is left of it: a step that failed
// leaves nothing behind.
//
// Thread safety: every method may be called from any thread.
class SwappedTensor : public std::enable_shared_from_this<SwappedTensor> {
 public:
  static constexpr char kName[] = "swapped tensor";
  using Fetched = std::function<void(const absl::Status&, tensorflow::Tensor)>;

  // `name`: of its memory when it comes back, for placement and errors. `step`: fails if there is
  // no room for it then. `place`: where it lies, and comes back to.
  static std::shared_ptr<SwappedTensor> Offload(Dymem* dymem, const std::string& name,
                                                std::shared_ptr<DymemStep> step,
                                                const TensorPlace& place,
                                                tensorflow::Tensor tensor);
  // It stays where it is, and leaves at a shortage only.
  static std::shared_ptr<SwappedTensor> Keep(Dymem* dymem, const std::string& name,
                                             std::shared_ptr<DymemStep> step,
                                             const TensorPlace& place, tensorflow::Tensor tensor);
  ~SwappedTensor();
  SwappedTensor(const SwappedTensor&) = delete;
  SwappedTensor& operator=(const SwappedTensor&) = delete;

  // Begins to bring it back, if there is room now.
  void Prefetch();
  // Brings it back, if it is not there yet, and waits for room if need be. Calls `fetched` once, by
  // any thread.
  void Fetch(Fetched fetched);

  DymemStep& step() { return *step_; }

 private:
  // What the tensor holds its memory by; the engine's release lets go of it.
  struct Hold {
    tensorflow::Tensor tensor;
  };
  enum class State { kAway, kComing, kHere, kRead };

  SwappedTensor(Dymem* dymem, std::string name, std::shared_ptr<DymemStep> step,
                const TensorPlace& place, const tensorflow::Tensor& tensor)
      : dymem_(*dymem),
        name_(std::move(name)),
        step_(std::move(step)),
        place_(place),
        type_(tensor.dtype()),
        shape_(tensor.shape()) {}

  void SendOut(tensorflow::Tensor tensor);
  // How it leaves at a shortage.
  UnreadTensors::Leave Leaving();
  // Sends it out again, unless somebody has read it.
  bool Leave();
  // Under mutex_.
  tensorflow::Tensor Read();
  void Bring(Patience patience);
  Status Allocate(Patience patience, size_t bytes, char** to);
  Status NoRoom(size_t bytes) const;
  // Without memory if there is no room.
  tensorflow::Tensor AllocateThere(bool waits);
  // Waits, on a device, whose allocator asks nobody for relief.
  tensorflow::Tensor AllocateApart();
  void Came(Patience patience, const Status& status);

  Dymem& dymem_;
  const std::string name_;
  const std::shared_ptr<DymemStep> step_;
  const TensorPlace place_;
  const tensorflow::DataType type_;
  const tensorflow::TensorShape shape_;
  const std::shared_ptr<Hold> hold_ = std::make_shared<Hold>();

  std::mutex mutex_;
  // Guarded by mutex_, but that handle_ and back_ belong to who brings it while it is coming.
  State state_ = State::kAway;
  int64_t handle_ = 0;
  tensorflow::Tensor back_;
  int64_t unread_ = 0;  // its number there, while it is here
  Fetched waiting_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_TENSOR_H_
