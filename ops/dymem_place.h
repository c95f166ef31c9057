// Where the tensors lie that a kernel gets: in the processor's memory, or in that of a device.

#ifndef TREPAK_OPS_DYMEM_PLACE_H_
#define TREPAK_OPS_DYMEM_PLACE_H_

#include <cstddef>
#include <memory>

#include "ops/runtime/dymem/swap_engine.h"
#include "ops/runtime/net/status.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace trepak {

// Owns nothing: devices live as long as TensorFlow's context. Thread safety: every method may be
// called from any thread.
class TensorPlace {
 public:
  // That of the kernel which runs there.
  explicit TensorPlace(tensorflow::OpKernelContext* context);

  // Whether it is a device's, whose memory the processor can't touch.
  bool is_apart() const { return copies_ != nullptr; }
  tensorflow::Allocator* allocator() const;
  // Whether so many bytes more leave a quarter of a device to kernels: what is prefetched there
  // can't leave again when one is short of memory. True if the device doesn't tell, and for the
  // processor, where it can.
  bool LeavesRoom(size_t bytes) const;

  // Between the device and the processor's memory, as SwapSource and SwapTarget say.
  HostCopy CopyOut(const tensorflow::Tensor& tensor) const;
  Status CopyIn(const std::shared_ptr<char>& from, tensorflow::Tensor* to) const;

 private:
  tensorflow::Device* const device_;
  tensorflow::DeviceContext* const copies_;  // null: the processor's
};

}  // namespace trepak

#endif  // TREPAK_OPS_DYMEM_PLACE_H_
