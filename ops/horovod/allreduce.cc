// Allreduces by Horovod's own core, for native code: MPI or Gloo, its fusion and its timeline.
//
// A library of its own: it needs Horovod's symbols, which the process has when it has loaded
// Horovod.

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "horovod/common/common.h"
#include "horovod/common/operations.h"
#include "ops/runtime/lanes/collective_calls.h"
#include "ops/runtime/rna/rna_worker.h"

namespace trepak {
namespace {

namespace hvd = ::horovod::common;

constexpr std::chrono::milliseconds kLook{50};  // for a reason to give up

hvd::DataType TypeOf(ElementType type) {
  return type == ElementType::kFloat64 ? hvd::HOROVOD_FLOAT64 : hvd::HOROVOD_FLOAT32;
}

// A payload as Horovod wants to see it.
class PayloadTensor : public hvd::Tensor {
 public:
  PayloadTensor(ElementType type, Payload payload) : type_(type), payload_(std::move(payload)) {}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-qualifiers"
  const hvd::DataType dtype() const override { return TypeOf(type_); }
#pragma GCC diagnostic pop
  const hvd::TensorShape shape() const override {
    return hvd::TensorShape(
        std::vector<int64_t>{static_cast<int64_t>(payload_.size() / SizeOf(type_))});
  }
  const void* data() const override { return payload_.data(); }
  int64_t size() const override { return static_cast<int64_t>(payload_.size()); }

 private:
  const ElementType type_;
  const Payload payload_;
};

class Memory : public hvd::PersistentBuffer {
 public:
  explicit Memory(int64_t size) : payload_(Payload::Allocate(static_cast<size_t>(size))) {}
  const void* AccessData(std::shared_ptr<hvd::OpContext>) const override { return payload_.data(); }

 private:
  const Payload payload_;
};

// Where Horovod gets memory, on the host.
class HostContext : public hvd::OpContext {
 public:
  hvd::Status AllocatePersistent(int64_t size,
                                 std::shared_ptr<hvd::PersistentBuffer>* buffer) override {
    *buffer = std::make_shared<Memory>(size);
    return hvd::Status::OK();
  }

  hvd::Status AllocateOutput(hvd::TensorShape, std::shared_ptr<hvd::Tensor>*,
                             std::shared_ptr<hvd::ReadyEvent>*) override {
    return hvd::Status::PreconditionError("trepak's allreduces bring their own output");
  }

  hvd::Status AllocateZeros(int64_t elements, hvd::DataType type,
                            std::shared_ptr<hvd::Tensor>* tensor) override {
    const ElementType element =
        type == hvd::HOROVOD_FLOAT64 ? ElementType::kFloat64 : ElementType::kFloat32;
    Payload zeros = Payload::Allocate(static_cast<size_t>(elements) * SizeOf(element));
    std::memset(zeros.mutable_data(), 0, zeros.size());
    *tensor = std::make_shared<PayloadTensor>(element, std::move(zeros));
    return hvd::Status::OK();
  }

  hvd::Framework framework() const override { return hvd::Framework::TENSORFLOW; }
};

Status FromHorovod(const hvd::Status& status) {
  return status.ok() ? OkStatus() : UnavailableError("Horovod: " + status.reason());
}

Status Start(const std::shared_ptr<hvd::OpContext>& context, int32_t process_set,
             CollectiveCalls::Sum sum) {
  const auto input = std::make_shared<PayloadTensor>(sum.type, std::move(sum.input));
  const auto output = std::make_shared<PayloadTensor>(sum.type, std::move(sum.output));
  return FromHorovod(hvd::EnqueueTensorAllreduce(
      context, input, output, hvd::ReadyEventList(), sum.name, CPU_DEVICE_ID,
      [input, output, done = std::move(sum.done)](const hvd::Status& outcome) {
        done(FromHorovod(outcome));
      },
      sum.average ? hvd::ReduceOp::AVERAGE : hvd::ReduceOp::SUM, 1.0, sum.factor, process_set));
}

// One allreduce that somebody waits for; Horovod's callback may come after he has given up.
class Call {
 public:
  void Finish(const Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    status_ = status;
    changed_.notify_all();
  }

  Status Wait(const std::function<bool()>& given_up) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, kLook, [this] { return done_; })) {
      lock.unlock();
      const bool over = given_up();
      lock.lock();
      if (over && !done_) {
        return CancelledError("nobody wants its result any more");
      }
    }
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // Guarded by mutex_.
  Status status_;      // Guarded by mutex_.
};

class HorovodReducer : public RoundReducer {
 public:
  HorovodReducer(std::string name, int32_t process_set)
      : name_(std::move(name)),
        process_set_(process_set),
        context_(std::make_shared<HostContext>()) {}

  Status Sum(uint64_t, ElementType type, const Payload& buffer,
             const std::function<bool()>& given_up) override {
    const auto call = std::make_shared<Call>();
    CollectiveCalls::Sum sum;
    // The same name for all rounds: they are one after the other, and Horovod knows a name again.
    sum.name = name_;
    sum.type = type;
    sum.input = sum.output = buffer;
    sum.done = [call](const Status& outcome) { call->Finish(outcome); };
    TREPAK_RETURN_IF_ERROR(Start(context_, process_set_, std::move(sum)));
    return call->Wait(given_up);
  }

 private:
  const std::string name_;
  const int32_t process_set_;
  const std::shared_ptr<hvd::OpContext> context_;
};

class HorovodCalls : public CollectiveCalls {
 public:
  HorovodCalls() : context_(std::make_shared<HostContext>()) {}

  Status StartSum(Sum sum) override { return Start(context_, 0, std::move(sum)); }

 private:
  const std::shared_ptr<hvd::OpContext> context_;
};

}  // namespace
}  // namespace trepak

// Returns allreduces of all ranks; the caller owns it.
extern "C" __attribute__((visibility("default"))) trepak::CollectiveCalls* TrepakHorovodCalls() {
  return new trepak::HorovodCalls();
}

// Returns a reducer over a process set, whose collectives have that name; the caller owns it.
extern "C" __attribute__((visibility("default"))) trepak::RoundReducer* TrepakHorovodReducer(
    const char* name, int32_t process_set) {
  return new trepak::HorovodReducer(name, process_set);
}
