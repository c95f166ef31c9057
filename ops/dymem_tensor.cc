#include "ops/dymem_tensor.h"

#include <utility>

#include "ops/status_adapter.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/profiler/lib/scoped_memory_debug_annotation.h"

namespace trepak {

std::shared_ptr<SwappedTensor> SwappedTensor::Offload(Dymem* dymem, const std::string& node,
                                                      int64_t step, tensorflow::Tensor tensor) {
  std::shared_ptr<SwappedTensor> made(new SwappedTensor(dymem, node, step, tensor));
  SwapSource source;
  source.name = node.substr(0, node.rfind("/trepak_"));  // the node that made it
  source.data = tensor.tensor_data().data();
  source.bytes = tensor.tensor_data().size();
  source.release = [hold = made->hold_] { hold->tensor = tensorflow::Tensor(); };
  tensor = tensorflow::Tensor();
  made->handle_ = dymem->engine().Offload(std::move(source));
  return made;
}

SwappedTensor::~SwappedTensor() { dymem_.engine().Drop(handle_); }

void SwappedTensor::Prefetch() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kAway) {
      return;
    }
    state_ = State::kComing;
  }
  Bring(Patience::kTry);
}

void SwappedTensor::Fetch(Fetched fetched) {
  bool is_away = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kHere) {
      is_away = state_ == State::kAway;
      state_ = State::kComing;
      waiting_ = std::move(fetched);
    }
  }
  if (is_away) {
    Bring(Patience::kWait);
  } else if (fetched != nullptr) {
    fetched(absl::OkStatus(), std::exchange(back_, tensorflow::Tensor()));
  }
}

void SwappedTensor::Bring(Patience patience) {
  const auto self = shared_from_this();
  SwapTarget target;
  target.allocate = [self, patience](size_t bytes, char** to) {
    return self->Allocate(patience, bytes, to);
  };
  target.done = [self, patience](const Status& status) { self->Came(patience, status); };
  target.take_back = [self] {
    self->back_ = std::exchange(self->hold_->tensor, tensorflow::Tensor());
  };
  dymem_.engine().Fetch(handle_, std::move(target));
}

Status SwappedTensor::Allocate(Patience patience, size_t bytes, char** to) {
  const tsl::profiler::ScopedMemoryDebugAnnotation annotation(node_, step_, "output", type_,
                                                              [] { return std::string(); });
  tensorflow::AllocationAttributes attributes;
  attributes.retry_on_failure = patience == Patience::kWait;
  back_ = tensorflow::Tensor(tensorflow::cpu_allocator(), type_, shape_, attributes);
  if (!back_.IsInitialized()) {
    return ResourceExhaustedError("no room for the " + std::to_string(bytes) + " bytes of '" +
                                  node_ + "' to come back to");
  }
  *to = const_cast<char*>(back_.tensor_data().data());
  return OkStatus();
}

void SwappedTensor::Came(Patience patience, const Status& status) {
  Fetched waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool comes_later = !status.ok() && patience == Patience::kTry;
    if (!comes_later || waiting_ == nullptr) {
      state_ = status.ok() ? State::kHere : State::kAway;
      waiting = std::exchange(waiting_, nullptr);
      if (waiting == nullptr) {
        return;
      }
    }
  }
  if (waiting == nullptr) {
    Bring(Patience::kWait);  // needed by now
  } else {
    waiting(ToAbslStatus(status), std::exchange(back_, tensorflow::Tensor()));
  }
}

}  // namespace trepak
