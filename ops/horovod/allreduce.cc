// Allreduces by Horovod's own core, for native code: MPI or Gloo, its fusion and its timeline.
//
// A library of its own: it needs Horovod's symbols, which the process has when it has loaded
// Horovod.

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "horovod/common/common.h"
#include "horovod/common/operations.h"
#include "ops/runtime/lanes/collective_calls.h"

namespace trepak {
namespace {

namespace hvd = ::horovod::common;

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

class HorovodCalls : public CollectiveCalls {
 public:
  explicit HorovodCalls(int32_t process_set)
      : process_set_(process_set), context_(std::make_shared<HostContext>()) {}

  Status StartSum(Sum sum) override {
    const auto input = std::make_shared<PayloadTensor>(sum.type, std::move(sum.input));
    const auto output = std::make_shared<PayloadTensor>(sum.type, std::move(sum.output));
    return FromHorovod(hvd::EnqueueTensorAllreduce(
        context_, input, output, hvd::ReadyEventList(), sum.name, CPU_DEVICE_ID,
        [input, output, done = std::move(sum.done)](const hvd::Status& outcome) {
          done(FromHorovod(outcome));
        },
        sum.average ? hvd::ReduceOp::AVERAGE : hvd::ReduceOp::SUM, 1.0, sum.factor, process_set_));
  }

 private:
  const int32_t process_set_;
  const std::shared_ptr<hvd::OpContext> context_;
};

}  // namespace
}  // namespace trepak

// Returns allreduces of a process set; the caller owns it.
extern "C" __attribute__((visibility("default"))) trepak::CollectiveCalls* TrepakHorovodCalls(
    int32_t process_set) {
  return new trepak::HorovodCalls(process_set);
}
