#include "ops/runtime/dymem/swap_engine.h"

#include <iterator>
#include <utility>

#include "ops/runtime/net/checksum.h"

namespace trepak {
SwapEngine::SwapEngine(std::unique_ptr<SwapTier> tier, SwapOptions options)
    : tier_(std::move(tier)), options_(options) {
  offload_stream_ = std::thread([this] { RunOffloads(); });
  fetch_stream_ = std::thread([this] { RunFetches(); });
}

SwapEngine::~SwapEngine() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  offload_stream_.join();
  fetch_stream_.join();
  for (auto& [handle, tensor] : tensors_) {
    Forget(*tensor);
  }
}

int64_t SwapEngine::Offload(SwapSource source) {
  auto tensor = std::make_shared<Tensor>();
  tensor->source = std::move(source);
  if (tensor->source.copy_out != nullptr) {
    if (tier_->is_memory()) {
      Begin(*tensor);
    }
  } else if (options_.checksums) {
    tensor->checksum = Checksum(tensor->source.data, tensor->source.bytes);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t handle = next_handle_++;
  tensors_[handle] = tensor;
  ++counters_.waiting_tensors;
  counters_.waiting_bytes += static_cast<int64_t>(tensor->source.bytes);
  offloads_[handle] = std::move(tensor);
  changed_.notify_all();
  return handle;
}

void SwapEngine::Fetch(int64_t handle, SwapTarget target) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = tensors_.find(handle);
  std::string name = found == tensors_.end() ? "" : found->second->source.name;
  fetches_.insert({next_fetch_++, FetchRequest{handle, std::move(name), std::move(target)}});
  changed_.notify_all();
}

void SwapEngine::Drop(int64_t handle) {
  std::shared_ptr<Tensor> tensor;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = tensors_.find(handle);
    if (found == tensors_.end()) {
      return;
    }
    tensor = std::move(found->second);
    tensors_.erase(found);
    tensor->dropped = true;
    if (tensor->state == Tensor::State::kOffloading || tensor->fetching) {
      return;  // the stream that is at work on it looks at `dropped` when it ends
    }
    Unqueue(handle);
  }
  Forget(*tensor);
}

Status SwapEngine::SynchronizeOffloads(Clock::time_point deadline) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t end = next_handle_;
  const auto first = [this] {
    return offloading_ != nullptr ? offloading_handle_
           : offloads_.empty()    ? next_handle_
                                  : offloads_.begin()->first;
  };
  if (changed_.wait_until(lock, deadline, [&] { return first() >= end; })) {
    return OkStatus();
  }
  const auto queued = std::distance(offloads_.begin(), offloads_.lower_bound(end));
  const Tensor& tensor = offloading_ != nullptr ? *offloading_ : *offloads_.begin()->second;
  return DeadlineExceededError(std::to_string(queued + (offloading_ != nullptr ? 1 : 0)) +
                               " offloads are not done in time, first that of " +
                               tensor.source.Describe() +
                               "; wait longer, or swap fewer tensors or to a faster place");
}

Status SwapEngine::SynchronizeFetches(Clock::time_point deadline) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t end = next_fetch_;
  if (changed_.wait_until(lock, deadline, [&] { return FirstFetch() >= end; })) {
    return OkStatus();
  }
  const auto queued = std::distance(fetches_.begin(), fetches_.lower_bound(end));
  return DeadlineExceededError(std::to_string(queued + (fetching_ != 0 ? 1 : 0)) +
                               " fetches are not done in time, first that of tensor '" +
                               (fetching_ != 0 ? fetching_name_ : fetches_.begin()->second.name) +
                               "'; wait longer, free memory for it, or swap fewer tensors");
}

int64_t SwapEngine::releases() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return releases_;
}

bool SwapEngine::WaitForRelease(Clock::time_point deadline) const {
  return WaitForRelease(deadline, releases());
}

bool SwapEngine::WaitForRelease(Clock::time_point deadline, int64_t releases) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto decided = [&] { return releases_ > releases || !offloads_wait() || stopping_; };
  changed_.wait_until(lock, deadline, decided);
  return releases_ > releases;
}

bool SwapEngine::WaitForFetch(Clock::time_point deadline) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t awaited = FirstFetch();
  if (awaited == next_fetch_ || std::this_thread::get_id() == fetch_stream_.get_id()) {
    return false;
  }
  return changed_.wait_until(lock, deadline, [&] { return FirstFetch() > awaited; });
}

SwapCounters SwapEngine::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

void SwapEngine::Unqueue(int64_t handle) {
  const auto found = offloads_.find(handle);
  if (found != offloads_.end()) {
    CountOut(*found->second);
    offloads_.erase(found);
    changed_.notify_all();
  }
}

void SwapEngine::CountOut(const Tensor& tensor) {
  --counters_.waiting_tensors;
  counters_.waiting_bytes -= static_cast<int64_t>(tensor.source.bytes);
}

void SwapEngine::Forget(Tensor& tensor) {
  GiveRoom(tensor);
  Release(tensor);
}

void SwapEngine::GiveRoom(Tensor& tensor) {
  tensor.host.bytes = nullptr;
  if (tensor.has_slot) {
    tensor.has_slot = false;
    failure_.Latch(tier_->Give(tensor.slot).Annotate(tensor.source.Describe()));
  }
}

void SwapEngine::Release(Tensor& tensor) {
  if (tensor.source.release == nullptr) {
    return;
  }
  std::exchange(tensor.source.release, nullptr)();
  std::lock_guard<std::mutex> lock(mutex_);
  ++releases_;
  changed_.notify_all();
}

}  // namespace trepak
