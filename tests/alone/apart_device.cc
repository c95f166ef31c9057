// A device for TensorFlow whose memory the processor can't touch: its addresses have no access, and
// only what a driver does, which is this plug-in, goes by another mapping of the same memory.
//
// It stands in for an accelerator: TensorFlow treats it as one, with a device context, copies, and
// kernels of its own. Everything ends before it returns.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_tensor.h"

namespace {

constexpr char kType[] = "APART";
constexpr size_t kBytes = size_t{64} << 20;
constexpr size_t kPage = 256;
#ifndef APART_HAS_TENSORFLOWS_ALLOCATOR
constexpr bool kHasTensorFlowsAllocator = false;
#else
constexpr bool kHasTensorFlowsAllocator = true;
#endif

class Memory {
 public:
  Memory() {
    const int file = memfd_create("apart", 0);
    if (ftruncate(file, kBytes) != 0) {
      return;
    }
    device_ = Map(file, PROT_NONE);
    driver_ = Map(file, PROT_READ | PROT_WRITE);
    std::memset(driver_, 0xAB, kBytes);
  }

  // The first place that is free and large enough.
  void* Allocate(uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t begin = 0;
    for (const auto& [taken, end] : taken_) {
      if (begin + bytes <= taken) {
        break;
      }
      begin = end;
    }
    if (begin + bytes > kBytes) {
      return nullptr;
    }
    taken_[begin] = begin + (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
    return device_ + begin;
  }
  void Free(const void* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    taken_.erase(static_cast<size_t>(static_cast<const char*>(address) - device_));
  }
  // What the driver has at an address of the device.
  template <typename Element>
  Element* At(const void* address) const {
    return reinterpret_cast<Element*>(driver_ + (static_cast<const char*>(address) - device_));
  }

 private:
  static char* Map(int file, int access) {
    return static_cast<char*>(mmap(nullptr, kBytes, access, MAP_SHARED, file, 0));
  }

  char* device_ = nullptr;
  char* driver_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, size_t> taken_;  // Guarded by mutex_; by where it begins, its end.
};

Memory& TheMemory() {
  static auto* const memory = new Memory;
  return *memory;
}

void Allocate(const SP_Device*, uint64_t size, int64_t, SP_DeviceMemoryBase* made) {
  made->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  made->opaque = TheMemory().Allocate(size);
  made->size = made->opaque == nullptr ? 0 : size;
}

void ToHost(const SP_Device*, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
            TF_Status*) {
  std::memcpy(to, TheMemory().At<char>(from->opaque), size);
}

void ToDevice(const SP_Device*, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
              TF_Status*) {
  std::memcpy(TheMemory().At<char>(to->opaque), from, size);
}

void Within(const SP_Device*, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
            uint64_t size, TF_Status*) {
  std::memcpy(TheMemory().At<char>(to->opaque), TheMemory().At<char>(from->opaque), size);
}

void MakeExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status*) {
  SP_StreamExecutor* const made = params->stream_executor;
  made->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  made->allocate = Allocate;
  made->deallocate = [](const SP_Device*, SP_DeviceMemoryBase* memory) {
    TheMemory().Free(memory->opaque);
  };
  made->host_memory_allocate = [](const SP_Device*, uint64_t size) {
    return aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage);
  };
  made->host_memory_deallocate = [](const SP_Device*, void* memory) { free(memory); };
  made->get_allocator_stats = [](const SP_Device*, SP_AllocatorStats*) -> TF_Bool { return 0; };
  made->device_memory_usage = [](const SP_Device*, int64_t* unused, int64_t* total) -> TF_Bool {
    *unused = *total = kBytes;
    return 1;
  };
  made->create_stream = [](const SP_Device*, SP_Stream* stream, TF_Status*) { *stream = nullptr; };
  made->destroy_stream = [](const SP_Device*, SP_Stream) {};
  made->create_stream_dependency = [](const SP_Device*, SP_Stream, SP_Stream, TF_Status*) {};
  made->get_stream_status = [](const SP_Device*, SP_Stream, TF_Status*) {};
  made->create_event = [](const SP_Device*, SP_Event* event, TF_Status*) { *event = nullptr; };
  made->destroy_event = [](const SP_Device*, SP_Event) {};
  made->get_event_status = [](const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; };
  made->record_event = [](const SP_Device*, SP_Stream, SP_Event, TF_Status*) {};
  made->wait_for_event = [](const SP_Device*, SP_Stream, SP_Event, TF_Status*) {};
  made->create_timer = [](const SP_Device*, SP_Timer* timer, TF_Status*) { *timer = nullptr; };
  made->destroy_timer = [](const SP_Device*, SP_Timer) {};
  made->start_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status*) {};
  made->stop_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status*) {};
  made->memcpy_dtoh = [](const SP_Device* device, SP_Stream, void* to,
                         const SP_DeviceMemoryBase* from, uint64_t size,
                         TF_Status* status) { ToHost(device, to, from, size, status); };
  made->memcpy_htod = [](const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to,
                         const void* from, uint64_t size,
                         TF_Status* status) { ToDevice(device, to, from, size, status); };
  made->memcpy_dtod = [](const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to,
                         const SP_DeviceMemoryBase* from, uint64_t size,
                         TF_Status* status) { Within(device, to, from, size, status); };
  made->sync_memcpy_dtoh = ToHost;
  made->sync_memcpy_htod = ToDevice;
  made->sync_memcpy_dtod = Within;
  made->block_host_for_event = [](const SP_Device*, SP_Event, TF_Status*) {};
  made->block_host_until_done = [](const SP_Device*, SP_Stream, TF_Status*) {};
  made->synchronize_all_activity = [](const SP_Device*, TF_Status*) {};
  made->mem_zero = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* at, uint64_t size,
                      TF_Status*) { std::memset(TheMemory().At<char>(at->opaque), 0, size); };
  made->memset = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* at, uint8_t pattern,
                    uint64_t size,
                    TF_Status*) { std::memset(TheMemory().At<char>(at->opaque), pattern, size); };
  made->memset32 = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* at, uint32_t pattern,
                      uint64_t size, TF_Status*) {
    std::fill_n(TheMemory().At<uint32_t>(at->opaque), size / 4, pattern);
  };
  made->host_callback = [](const SP_Device*, SP_Stream, SE_StatusCallbackFn callback,
                           void* argument) -> TF_Bool {
    TF_Status* const status = TF_NewStatus();
    callback(argument, status);
    TF_DeleteStatus(status);
    return 1;
  };
}

struct Input {
  Input(TF_OpKernelContext* context, int number, TF_Status* status) {
    TF_GetInput(context, number, &tensor, status);
  }
  ~Input() { TF_DeleteTensor(tensor); }
  template <typename Element>
  Element* data() const {
    return TheMemory().At<Element>(TF_TensorData(tensor));
  }
  TF_Tensor* tensor = nullptr;
};

void* NoState(TF_OpKernelConstruction*) { return nullptr; }
void DeleteNoState(void*) {}

void Gather(void*, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const Input rows(context, 0, status);
  const Input slots(context, 1, status);
  const int64_t shape[] = {TF_Dim(slots.tensor, 0), TF_Dim(rows.tensor, 1)};
  TF_Tensor* const made = TF_AllocateOutput(context, 0, TF_FLOAT, shape, 2,
                                            4 * static_cast<size_t>(shape[0] * shape[1]), status);
  for (int64_t i = 0; i < shape[0]; ++i) {
    const int32_t slot = slots.data<int32_t>()[i];
    std::memcpy(TheMemory().At<float>(TF_TensorData(made)) + i * shape[1],
                rows.data<float>() + slot * shape[1], 4 * static_cast<size_t>(shape[1]));
  }
  TF_DeleteTensor(made);
  TF_DeleteStatus(status);
}

void Scatter(void*, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const Input rows(context, 0, status);
  const Input slots(context, 1, status);
  const Input values(context, 2, status);
  const int64_t record = TF_Dim(rows.tensor, 1);
  for (int64_t i = 0; i < TF_Dim(slots.tensor, 0); ++i) {
    const int32_t slot = slots.data<int32_t>()[i];
    std::memcpy(rows.data<float>() + slot * record, values.data<float>() + i * record,
                4 * static_cast<size_t>(record));
  }
  TF_SetOutput(context, 0, rows.tensor, status);
  TF_DeleteStatus(status);
}

}  // namespace

extern "C" {

void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status*) {
  params->major_version = SE_MAJOR;
  params->minor_version = SE_MINOR;
  params->patch_version = SE_PATCH;
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = kType;
  params->platform->type = kType;
  params->platform->use_bfc_allocator = kHasTensorFlowsAllocator ? 1 : 0;
  SP_PlatformFns* const made = params->platform_fns;
  made->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  made->get_device_count = [](const SP_Platform*, int* count, TF_Status*) { *count = 1; };
  made->create_device = [](const SP_Platform*, SE_CreateDeviceParams* device, TF_Status*) {
    device->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    device->device->ordinal = device->ordinal;
    device->device->hardware_name = device->device->device_vendor = "none";
    device->device->pci_bus_id = "none";
  };
  made->destroy_device = [](const SP_Platform*, SP_Device*) {};
  made->create_device_fns = [](const SP_Platform*, SE_CreateDeviceFnsParams* functions,
                               TF_Status*) {
    functions->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  };
  made->destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  made->create_stream_executor = MakeExecutor;
  made->destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  made->create_timer_fns = [](const SP_Platform*, SP_TimerFns* timer, TF_Status*) {
    timer->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
    timer->nanoseconds = [](SP_Timer) -> uint64_t { return 0; };
  };
  made->destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};
}

void TF_InitKernel() {
  TF_Status* const status = TF_NewStatus();
  TF_KernelBuilder* const gather =
      TF_NewKernelBuilder("GatherV2", kType, NoState, Gather, DeleteNoState);
  TF_KernelBuilder_HostMemory(gather, "axis");
  TF_RegisterKernelBuilder("GatherV2", gather, status);
  TF_RegisterKernelBuilder(
      "InplaceUpdate", TF_NewKernelBuilder("InplaceUpdate", kType, NoState, Scatter, DeleteNoState),
      status);
  TF_DeleteStatus(status);
}

}  // extern "C"
