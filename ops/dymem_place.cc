#include "ops/dymem_place.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <utility>

namespace trepak {
namespace {

namespace tf = tensorflow;

Status ToStatus(const absl::Status& status) {
  return status.ok() ? OkStatus() : InternalError(std::string(status.message()));
}

// Memory that others own.
class SharedBuffer : public tf::TensorBuffer {
 public:
  SharedBuffer(std::shared_ptr<char> bytes, size_t size)
      : TensorBuffer(bytes.get()), bytes_(std::move(bytes)), size_(size) {}

  size_t size() const override { return size_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tf::AllocationDescription*) const override {}

 private:
  const std::shared_ptr<char> bytes_;
  const size_t size_;
};

// What a copy needs until it is done, which its end lets go of before it tells.
struct Copy {
  tf::Tensor from;
  tf::Tensor to;
  std::promise<Status> done;

  static tf::StatusCallback End(std::shared_ptr<Copy> copy) {
    return [copy = std::move(copy)](const absl::Status& status) {
      copy->from = tf::Tensor();
      copy->to = tf::Tensor();
      copy->done.set_value(ToStatus(status));
    };
  }
};

}  // namespace

TensorPlace::TensorPlace(tf::OpKernelContext* context)
    : device_(static_cast<tf::Device*>(context->device())),
      copies_(device_->tensorflow_accelerator_device_info() == nullptr
                  ? nullptr
                  : context->op_device_context()) {}

tf::Allocator* TensorPlace::allocator() const {
  return is_apart() ? device_->GetAllocator({}) : tf::cpu_allocator();
}

bool TensorPlace::LeavesRoom(size_t bytes) const {
  if (!is_apart()) {
    return true;
  }
  const auto stats = allocator()->GetStats();
  if (!stats.has_value() || stats->bytes_limit.value_or(0) <= 0) {
    return true;
  }
  const int64_t limit = *stats->bytes_limit;
  return stats->bytes_in_use + static_cast<int64_t>(bytes) <= limit - limit / 4;
}

HostCopy TensorPlace::CopyOut(const tf::Tensor& tensor) const {
  const auto copy = std::make_shared<Copy>();
  HostCopy made{nullptr, copy->done.get_future()};
  tf::AllocatorAttributes host;
  host.set_on_host(true);
  host.set_gpu_compatible(true);
  tf::AllocationAttributes at_once;
  at_once.retry_on_failure = false;
  copy->from = tensor;
  copy->to = tf::Tensor(device_->GetAllocator(host), tensor.dtype(), tensor.shape(), at_once);
  if (!copy->to.IsInitialized()) {
    copy->done.set_value(ResourceExhaustedError(
        device_->name() + " gets no memory of the processor's to copy to; lower beyond="));
    return made;
  }
  const auto held = std::make_shared<tf::Tensor>(copy->to);
  made.bytes = std::shared_ptr<char>(held, static_cast<char*>(held->data()));
  copies_->CopyDeviceTensorToCPU(&copy->from, "trepak_offload", device_, &copy->to,
                                 Copy::End(copy));
  return made;
}

Status TensorPlace::CopyIn(const std::shared_ptr<char>& from, tf::Tensor* to) const {
  constexpr auto kPatience = std::chrono::minutes(10);  // the computation of a whole step
  const auto copy = std::make_shared<Copy>();
  std::future<Status> done = copy->done.get_future();
  copy->from =
      tf::Tensor(to->dtype(), to->shape(),
                 tf::core::RefCountPtr<tf::TensorBuffer>(new SharedBuffer(from, to->TotalBytes())));
  copy->to = *to;
  copies_->CopyCPUTensorToDevice(&copy->from, device_, &copy->to, Copy::End(copy));
  return done.wait_for(kPatience) == std::future_status::ready
             ? done.get()
             : DeadlineExceededError(device_->name() +
                                     " does not end its copy from memory; look for its errors in "
                                     "the log");
}

}  // namespace trepak
