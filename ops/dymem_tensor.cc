#include "ops/dymem_tensor.h"

#include <chrono>
#include <utility>

#include "ops/status_adapter.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/profiler/lib/scoped_memory_debug_annotation.h"

namespace trepak {

std::shared_ptr<SwappedTensor> SwappedTensor::Offload(Dymem* dymem, const std::string& name,
                                                      std::shared_ptr<DymemStep> step,
                                                      const TensorPlace& place,
                                                      tensorflow::Tensor tensor) {
  std::shared_ptr<SwappedTensor> made(
      new SwappedTensor(dymem, name, std::move(step), place, tensor));
  made->SendOut(std::move(tensor));
  return made;
}

std::shared_ptr<SwappedTensor> SwappedTensor::Keep(Dymem* dymem, const std::string& name,
                                                   std::shared_ptr<DymemStep> step,
                                                   const TensorPlace& place,
                                                   tensorflow::Tensor tensor) {
  std::shared_ptr<SwappedTensor> made(new SwappedTensor(dymem, name, step, place, tensor));
  std::lock_guard<std::mutex> lock(made->mutex_);
  made->state_ = State::kHere;
  made->back_ = std::move(tensor);
  made->unread_ = dymem->unread().AddKept([leave = made->Leaving(), step] {
    const bool left = leave();
    if (left) {
      step->Short();
    }
    return left;
  });
  return made;
}

UnreadTensors::Leave SwappedTensor::Leaving() {
  return [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self != nullptr && self->Leave();
  };
}

SwappedTensor::~SwappedTensor() {
  dymem_.unread().Remove(unread_);
  dymem_.engine().Drop(handle_);
}

void SwappedTensor::SendOut(tensorflow::Tensor tensor) {
  SwapSource source;
  source.name = name_.substr(0, name_.rfind("/trepak_"));  // the node that made it
  source.bytes = tensor.tensor_data().size();
  if (place_.is_apart()) {
    source.copy_out = [place = place_, hold = hold_] { return place.CopyOut(hold->tensor); };
  } else {
    source.data = tensor.tensor_data().data();
  }
  source.release = [hold = hold_] { hold->tensor = tensorflow::Tensor(); };
  hold_->tensor = std::move(tensor);
  handle_ = dymem_.engine().Offload(std::move(source));
}

bool SwappedTensor::Leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kHere) {
    return false;
  }
  state_ = State::kAway;
  SendOut(std::exchange(back_, tensorflow::Tensor()));
  return true;
}

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
  tensorflow::Tensor here;
  bool is_here = false;
  bool is_coming = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_here = state_ == State::kHere;
    is_coming = state_ == State::kComing;
    if (is_here) {
      here = Read();
    } else {
      state_ = State::kComing;
      waiting_ = std::move(fetched);
    }
  }
  if (is_here) {
    fetched(absl::OkStatus(), std::move(here));
  } else if (!is_coming) {
    Bring(Patience::kWait);
  }
}

tensorflow::Tensor SwappedTensor::Read() {
  state_ = State::kRead;
  dymem_.unread().Remove(unread_);
  return std::exchange(back_, tensorflow::Tensor());
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
  if (place_.is_apart()) {
    target.copy_in = [self](const std::shared_ptr<char>& from) {
      return self->place_.CopyIn(from, &self->back_);
    };
  }
  dymem_.engine().Fetch(handle_, std::move(target));
}

Status SwappedTensor::Allocate(Patience patience, size_t bytes, char** to) {
  const tsl::profiler::ScopedMemoryDebugAnnotation annotation(name_, step_->id(), "output", type_,
                                                              [] { return std::string(); });
  const bool waits = patience == Patience::kWait;
  if (!waits && !place_.LeavesRoom(bytes)) {
    return NoRoom(bytes);
  }
  back_ = waits && place_.is_apart() ? AllocateApart() : AllocateThere(waits);
  if (!back_.IsInitialized()) {
    return NoRoom(bytes);
  }
  *to = const_cast<char*>(back_.tensor_data().data());
  return OkStatus();
}

Status SwappedTensor::NoRoom(size_t bytes) const {
  return ResourceExhaustedError("no room for the " + std::to_string(bytes) + " bytes of '" + name_ +
                                "' to come back to");
}

tensorflow::Tensor SwappedTensor::AllocateThere(bool waits) {
  tensorflow::AllocationAttributes attributes;
  attributes.retry_on_failure = waits;
  return tensorflow::Tensor(place_.allocator(), type_, shape_, attributes);
}

tensorflow::Tensor SwappedTensor::AllocateApart() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  while (true) {
    const int64_t releases = dymem_.releases();
    tensorflow::Tensor made = AllocateThere(false);
    if (made.IsInitialized()) {
      return made;
    }
    if (!dymem_.WaitForRelease(deadline, releases)) {
      return AllocateThere(true);  // until kernels free some
    }
  }
}

void SwappedTensor::Came(Patience patience, const Status& status) {
  Fetched waiting;
  tensorflow::Tensor here;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) {
      back_ = tensorflow::Tensor();
      if (waiting_ != nullptr && patience == Patience::kTry) {
        Bring(Patience::kWait);  // needed by now
        return;
      }
      state_ = State::kAway;
    } else if (waiting_ != nullptr) {
      here = Read();
    } else {
      state_ = State::kHere;
      unread_ = dymem_.unread().Add(Leaving());
    }
    waiting = std::exchange(waiting_, nullptr);
  }
  if (waiting != nullptr) {
    waiting(ToAbslStatus(status), std::move(here));
  }
}

}  // namespace trepak
