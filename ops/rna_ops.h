// What RNA's ops share.

#ifndef TREPAK_OPS_RNA_OPS_H_
#define TREPAK_OPS_RNA_OPS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "horovod_ext/runtime/payload.h"
#include "horovod_ext/runtime/rna_engine.h"
#include "ops/payload_tensor.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

// Where gradients lie in the one buffer that all of them share: each where a tensor may begin.
class Layout {
 public:
  explicit Layout(tensorflow::DataType type) : element_(SizeOf(ElementTypeOf(type))) {}

  // Places the next one; returns the offset of its first byte.
  size_t Place(int64_t elements) {
    constexpr size_t kAlignment = static_cast<size_t>(Payload::kAlignment);
    const size_t offset = bytes_;
    const size_t end = offset + static_cast<size_t>(elements) * element_;
    bytes_ = (end + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }

  size_t bytes() const { return bytes_; }

 private:
  const size_t element_;
  size_t bytes_ = 0;
};

class RnaOp : public tensorflow::OpKernel {
 public:
  explicit RnaOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("stream", &stream_));
  }

 protected:
  RnaEngine& engine() const { return RnaEngine::Of(static_cast<uint32_t>(stream_)); }
  // Of its collectives, the same on all ranks.
  std::string engine_name() const { return "trepak_rna_" + std::to_string(stream_); }

 private:
  int stream_ = 0;
};

inline Status NotRunning() {
  return NotFoundError("RNA does not run; DistributedOptimizer(sync=trepak.RNA()) starts it");
}

}  // namespace trepak

#endif  // TREPAK_OPS_RNA_OPS_H_
