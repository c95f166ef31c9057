// TensorFlow's allocator of memory for the processor, on Dymem's pool.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "ops/calls.h"
#include "ops/dymem.h"
#include "ops/dymem_names.h"
#include "ops/dymem_trace.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/allocator_registry.h"
#include "tensorflow/core/profiler/lib/scoped_memory_debug_annotation.h"

namespace trepak {
namespace {

// TensorFlow ends the process if an allocator is registered after the first one was used, and has
// no way to ask. An explicit instantiation may name what is private.
template <bool tsl::AllocatorFactoryRegistry::*kMade>
struct FirstAllocation {
  friend bool WasMade(const tsl::AllocatorFactoryRegistry& registry) { return registry.*kMade; }
};
template struct FirstAllocation<&tsl::AllocatorFactoryRegistry::first_alloc_made_>;
bool WasMade(const tsl::AllocatorFactoryRegistry& registry);

// Thread safety: as Allocator's.
class DymemAllocator : public tsl::Allocator {
 public:
  explicit DymemAllocator(Dymem* dymem) : dymem_(*dymem) {}

  std::string Name() override { return "trepak_dymem"; }

  void* AllocateRaw(size_t alignment, size_t bytes) override {
    return AllocateRaw(alignment, bytes, tsl::AllocationAttributes());
  }

  void* AllocateRaw(size_t alignment, size_t bytes,
                    const tsl::AllocationAttributes& attributes) override {
    if (alignment > MemoryPool::kAlignment) {
      return nullptr;  // nobody asks for it
    }
    const auto& asked = tsl::profiler::ScopedMemoryDebugAnnotation::CurrentAnnotation();
    const std::string_view node(asked.pending_op_name);
    NodeFacts facts;
    if (bytes >= MemoryPool::kSmall && !node.empty()) {
      facts = dymem_.FactsOf(node);
    }
    const Placement::Request request{bytes, facts.group.mobility, facts.group.references};
    const bool is_scratch = asked.pending_region_type == "temp";
    void* const memory = is_scratch
                             ? dymem_.pool().Allocate(request, Patience::kScratch)
                             : TakeOutput(request, node, facts.is_blind || IsEagerOneDnn(node),
                                          asked.pending_step_id, attributes.retry_on_failure);
    if (dymem_.trace() != nullptr && memory != nullptr) {
      dymem_.trace()->recorder().Allocated(memory, std::string(node), bytes, is_scratch);
    }
    return memory;
  }

  void DeallocateRaw(void* memory) override {
    if (dymem_.trace() != nullptr) {
      dymem_.trace()->recorder().Freed(memory);
    }
    dymem_.pool().Free(memory);
  }

 private:
  // Outside of graphs a node bears its op's name, and no pass has seen it.
  static bool IsEagerOneDnn(std::string_view node) { return node.rfind("_Mkl", 0) == 0; }

  void* TakeOutput(const Placement::Request& request, std::string_view node, bool is_blind,
                   int64_t step, bool waits) {
    void* memory = nullptr;
    if (request.bytes < MemoryPool::kSmall || dymem_.DoomOf(step).ok()) {
      memory = dymem_.pool().Allocate(request, waits ? Patience::kWait : Patience::kTry);
    }
    if (memory == nullptr && waits) {
      dymem_.Doom(step, node, request.bytes);
      if (is_blind) {
        return dymem_.pool().Allocate(request, Patience::kScratch);
      }
    }
    return memory;
  }

  Dymem& dymem_;
};

class DymemAllocatorFactory : public tsl::AllocatorFactory {
 public:
  explicit DymemAllocatorFactory(Dymem* dymem) : dymem_(dymem) {}

  tsl::Allocator* CreateAllocator() override { return new DymemAllocator(dymem_); }
  tsl::SubAllocator* CreateSubAllocator(int) override { return new Pieces(dymem_); }

 private:
  // For who manages memory of its own, which nobody does unless told to by an environment variable.
  class Pieces : public tsl::SubAllocator {
   public:
    explicit Pieces(Dymem* dymem) : SubAllocator({}, {}), dymem_(*dymem) {}
    void* Alloc(size_t, size_t bytes, size_t* received) override {
      *received = bytes;
      return dymem_.pool().Allocate({bytes, Mobility::kReclaimed, 1}, Patience::kWait);
    }
    void Free(void* memory, size_t) override { dymem_.pool().Free(memory); }
    bool SupportsCoalescing() const override { return false; }

   private:
    Dymem& dymem_;
  };

  Dymem* const dymem_;
};

// What is wrong; empty if nothing is.
std::string Install(const Json& given) {
  static auto* const installing = new std::mutex;
  std::lock_guard<std::mutex> lock(*installing);
  tsl::AllocatorFactoryRegistry* const registry = tsl::AllocatorFactoryRegistry::singleton();
  if (Dymem::Global() != nullptr) {
    return "twice";
  }
  if (WasMade(*registry)) {
    return "late";
  }
  DymemOptions options;
  options.pool.kind = PoolKindOf(given.at("placement"));
  options.pool.limit = given.at("pool");
  options.pool.finds_limit = given.at("finds_limit");
  options.pool.beta = given.at("beta");
  if (options.pool.beta == 0 && !options.pool.finds_limit) {
    options.pool.beta = options.pool.limit / MemoryPool::kBetaPart;
  }
  options.policy_name = given.at("policy");
  options.policy = SwapPolicyOf(options.policy_name);
  options.checksums = given.at("checksums");
  options.always_swaps = given.at("always_swap");
  options.link_bytes_per_second = given.at("link");
  options.traces = given.at("traces");
  std::unique_ptr<SwapTier> tier;
  const std::string folder = given.at("folder");
  Status status = folder.empty() ? MakeMemoryTier(given.at("beyond"), &tier)
                                 : MakeFileTier(folder, SwapTier::kNoLimit, &tier);
  std::unique_ptr<MemoryPool> pool;
  if (status.ok()) {
    status = MemoryPool::Make(options.pool, &pool);
  }
  if (!status.ok()) {
    return std::string(status.message());
  }
  RegisterDymemPass();
  constexpr int kAboveAllOthers = 1000;
  registry->Register(
      __FILE__, __LINE__, "trepak_dymem", kAboveAllOthers,
      new DymemAllocatorFactory(Dymem::Make(options, std::move(pool), std::move(tier))));
  return "";
}

}  // namespace
}  // namespace trepak

// Not by `call`, which runs an op: this must come before TensorFlow's first allocation. Returns
// what is wrong, for the caller to copy at once; "late" and "twice" for what Python tells of.
extern "C" __attribute__((visibility("default"))) const char* trepak_install_dymem(
    const char* options) {
  static thread_local std::string wrong;
  try {
    wrong = trepak::Install(trepak::Json::parse(options));
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  return wrong.c_str();
}
