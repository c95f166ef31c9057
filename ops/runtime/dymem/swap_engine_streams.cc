// What the two threads of a SwapEngine do.

#include <cstring>
#include <utility>

#include "ops/runtime/dymem/swap_engine.h"
#include "ops/runtime/net/checksum.h"

namespace trepak {
namespace {

constexpr char kStaysThere[] = " stays where it is";
constexpr char kCameChanged[] =
    " came back changed: check the memory or disk that it was swapped to";

double SecondsSince(SwapEngine::Clock::time_point begin) {
  return std::chrono::duration<double>(SwapEngine::Clock::now() - begin).count();
}

}  // namespace

void SwapEngine::RunOffloads() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !offloads_.empty(); });
    if (stopping_) {
      return;
    }
    const auto first = offloads_.begin();
    const std::shared_ptr<Tensor> tensor = std::move(first->second);
    offloading_handle_ = first->first;
    offloading_ = tensor;
    offloads_.erase(first);
    tensor->state = Tensor::State::kOffloading;
    lock.unlock();

    const Clock::time_point begin = Clock::now();
    const Status status = CopyOut(*tensor);
    if (status.ok()) {
      Pace(begin, tensor->source.bytes, options_.offload_bytes_per_second);
    }
    const double busy_seconds = SecondsSince(begin);
    if (status.ok()) {
      Show(Timeline::Track::kCopiesOut, tensor->source, begin);
      Release(*tensor);
    }
    failure_.Latch(status);

    lock.lock();
    const auto bytes = static_cast<int64_t>(tensor->source.bytes);
    (status.ok() ? counters_.offloaded_tensors : counters_.kept_tensors) += 1;
    (status.ok() ? counters_.offloaded_bytes : counters_.kept_bytes) += bytes;
    counters_.offload_busy_seconds += busy_seconds;
    CountOut(*tensor);
    tensor->state = status.ok() ? Tensor::State::kOffloaded : Tensor::State::kStays;
    if (tensor->dropped) {
      lock.unlock();
      Forget(*tensor);
      lock.lock();
    }
    offloading_ = nullptr;
    changed_.notify_all();
  }
}

Status SwapEngine::CopyOut(Tensor& tensor) {
  Status status =
      tensor.source.copy_out == nullptr ? CopyOutOfMemory(tensor) : CopyOutOfDevice(tensor);
  if (!status.ok()) {
    GiveRoom(tensor);
  }
  return status;
}

Status SwapEngine::CopyOutOfMemory(Tensor& tensor) {
  const SwapSource& source = tensor.source;
  Status status = tier_->Take(source.bytes, &tensor.slot);
  if (status.ok()) {
    tensor.has_slot = true;
    status = tier_->Write(tensor.slot, source.data, source.bytes);
  }
  if (!status.ok()) {
    return status.Annotate(source.Describe() + kStaysThere);
  }
  if (options_.checksums && Checksum(source.data, source.bytes) != tensor.checksum) {
    tensor.changed = InternalError(
        source.Describe() +
        " was written to, or freed, while it was swapped out: only swap what nobody writes to "
        "before it is released");
  }
  return tensor.changed;
}

void SwapEngine::Begin(Tensor& tensor) {
  tensor.refused = tier_->Take(tensor.source.bytes, &tensor.slot);
  if (tensor.refused.ok()) {
    tensor.has_slot = true;
    tensor.host = tensor.source.copy_out();
  }
}

Status SwapEngine::CopyOutOfDevice(Tensor& tensor) {
  if (!tier_->is_memory()) {
    Begin(tensor);
  }
  const SwapSource& source = tensor.source;
  Status status = tensor.refused;
  if (status.ok()) {
    status = tensor.host.done.wait_for(options_.patience) == std::future_status::ready
                 ? tensor.host.done.get()
                 : DeadlineExceededError(
                       "the device does not end its copy to memory; look for "
                       "its errors in the log");
  }
  if (status.ok() && options_.checksums) {
    tensor.checksum = Checksum(tensor.host.bytes.get(), source.bytes);
  }
  if (status.ok() && !tier_->is_memory()) {
    const std::shared_ptr<char> bytes = std::move(tensor.host.bytes);
    status = tier_->Write(tensor.slot, bytes.get(), source.bytes);
  }
  return status.ok() ? status : status.Annotate(source.Describe() + kStaysThere);
}

void SwapEngine::RunFetches() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !fetches_.empty(); });
    if (fetches_.empty()) {
      return;
    }
    FetchRequest request = std::move(fetches_.begin()->second);
    fetching_ = fetches_.begin()->first;
    fetching_name_ = request.name;
    fetches_.erase(fetches_.begin());
    std::shared_ptr<Tensor> tensor;
    Status status = BeginFetch(lock, request, &tensor);
    const bool stays = tensor != nullptr && tensor->state == Tensor::State::kStays;
    lock.unlock();

    if (stays) {
      GiveRoom(*tensor);  // of a device's copy that had begun before its turn
    }
    if (tensor != nullptr) {
      const bool taken_back = TakesBack(*tensor, request.target);
      double busy_seconds = 0;
      status = CopyIn(*tensor, request.target, &busy_seconds);
      lock.lock();
      if (status.ok()) {
        tensors_.erase(request.handle);
        ++counters_.fetched_tensors;
        counters_.fetched_bytes += static_cast<int64_t>(tensor->source.bytes);
        counters_.taken_back_tensors += taken_back ? 1 : 0;
      }
      counters_.fetch_busy_seconds += busy_seconds;
      tensor->fetching = false;
      const bool forget = tensor->dropped;
      lock.unlock();
      if (forget) {
        Forget(*tensor);
      }
    }
    request.target.done(status);
    request.target = {};  // what they own may call the engine when it goes

    lock.lock();
    fetching_ = 0;
    changed_.notify_all();
  }
}

Status SwapEngine::BeginFetch(std::unique_lock<std::mutex>& lock, const FetchRequest& request,
                              std::shared_ptr<Tensor>* tensor) {
  const std::string what = request.name.empty()
                               ? "the tensor of handle " + std::to_string(request.handle)
                               : "tensor '" + request.name + "'";
  if (stopping_) {
    return CancelledError(what + " is not fetched: its swap engine ends; fetch before that");
  }
  auto found = tensors_.find(request.handle);
  if (found != tensors_.end() && found->second->state == Tensor::State::kOffloading) {
    const std::shared_ptr<Tensor> awaited = found->second;
    const Clock::time_point begin = Clock::now();
    const bool ended = changed_.wait_until(lock, begin + options_.patience, [&] {
      return awaited->state != Tensor::State::kOffloading;
    });
    counters_.fetch_waited_seconds += SecondsSince(begin);
    if (!ended) {
      return DeadlineExceededError(what +
                                   " is not fetched: its offload does not end; check the memory or "
                                   "disk that it is swapped to");
    }
    found = tensors_.find(request.handle);  // unless it was dropped meanwhile
  }
  if (found == tensors_.end()) {
    return NotFoundError(what +
                         " is not swapped out: it was fetched or dropped before, or never was; "
                         "fetch each once");
  }
  *tensor = found->second;
  if ((*tensor)->state == Tensor::State::kQueued) {
    // To wait for its turn, and then for two copies, would take longer than one, and might never
    // end, should what is before it in the queue need the memory that this fetch is to free.
    (*tensor)->state = Tensor::State::kStays;
    ++counters_.cancelled_offloads;
    Unqueue(request.handle);
  }
  (*tensor)->fetching = true;
  return OkStatus();
}

Status SwapEngine::CopyIn(Tensor& tensor, const SwapTarget& target, double* busy_seconds) {
  const SwapSource& source = tensor.source;
  TREPAK_RETURN_IF_ERROR(tensor.changed);
  const bool takes_back = TakesBack(tensor, target);
  char* to = const_cast<char*>(source.data);
  if (!takes_back) {
    to = nullptr;
    TREPAK_RETURN_IF_ERROR(
        target.allocate(source.bytes, &to).Annotate("fetching " + source.Describe()));
    if (to == nullptr && source.bytes > 0 && source.copy_out == nullptr) {
      return InternalError("no memory was named to fetch " + source.Describe() +
                           " to: allocate must name some, or fail");
    }
  }
  const Clock::time_point begin = Clock::now();
  TREPAK_RETURN_IF_ERROR(source.copy_out == nullptr ? CopyInToMemory(tensor, to)
                         : takes_back               ? OkStatus()
                                                    : CopyInToDevice(tensor, target));
  if (tensor.has_slot) {
    Pace(begin, source.bytes, options_.fetch_bytes_per_second);
  }
  *busy_seconds = SecondsSince(begin);
  if (takes_back) {
    tensor.source.release = nullptr;
    target.take_back();
  } else {
    Show(Timeline::Track::kCopiesIn, source, begin);
    Forget(tensor);
  }
  return OkStatus();
}

Status SwapEngine::CopyInToMemory(const Tensor& tensor, char* to) {
  const SwapSource& source = tensor.source;
  if (tensor.has_slot) {
    TREPAK_RETURN_IF_ERROR(
        tier_->Read(tensor.slot, to, source.bytes).Annotate("fetching " + source.Describe()));
  } else if (to != source.data && source.bytes > 0) {
    std::memcpy(to, source.data, source.bytes);
  }
  if (options_.checksums && Checksum(to, source.bytes) != tensor.checksum) {
    return InternalError(
        source.Describe() +
        (tensor.has_slot ? kCameChanged
                         : " was written to while it waited to be fetched: only swap what nobody "
                           "writes to before it is released"));
  }
  return OkStatus();
}

Status SwapEngine::CopyInToDevice(const Tensor& tensor, const SwapTarget& target) {
  const SwapSource& source = tensor.source;
  if (!tensor.has_slot) {
    return InternalError(source.Describe() +
                         " is still on its device: its fetch must be able to take it back");
  }
  std::shared_ptr<char> from = tensor.host.bytes;
  if (!tier_->is_memory()) {
    from = std::shared_ptr<char>(new char[source.bytes], std::default_delete<char[]>());
    TREPAK_RETURN_IF_ERROR(tier_->Read(tensor.slot, from.get(), source.bytes)
                               .Annotate("fetching " + source.Describe()));
  }
  if (options_.checksums && Checksum(from.get(), source.bytes) != tensor.checksum) {
    return InternalError(source.Describe() + kCameChanged);
  }
  return target.copy_in(from).Annotate("fetching " + source.Describe());
}

void SwapEngine::Pace(Clock::time_point begin, size_t bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) {
    return;
  }
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, begin + std::chrono::duration_cast<Clock::duration>(takes),
                      [this] { return stopping_; });
}

}  // namespace trepak
